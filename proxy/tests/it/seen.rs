//! What operators see of the command line, as snapshots: a change of wording is a diff that
//! somebody reviews.

use std::{fmt::Write as _, process::Command};

/// What the program prints with these arguments, with nothing of this machine's environment.
fn printed(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deltaweir"));
    let output = command.args(arguments).env_clear().env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The help of a command and of those below it.
fn help_of(path: &[&str], told: &mut String) {
    let arguments: Vec<&str> = path.iter().copied().chain(["--help"]).collect();
    let help = printed(&arguments);
    writeln!(told, "$ deltaweir {}\n{help}", arguments.join(" ")).unwrap();
    let commands = help.split_once("Commands:\n").map_or("", |(_, rest)| rest.split("\n\n").next().unwrap());
    let names = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for name in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        let below: Vec<&str> = path.iter().copied().chain([name]).collect();
        help_of(&below, told);
    }
}

#[test]
fn the_help_of_every_command_is_as_recorded() {
    let mut told = String::new();
    help_of(&[], &mut told);
    assert!(told.matches("$ deltaweir").count() > 15, "commands were not found");
    insta::assert_snapshot!(told);
}

#[test]
fn the_settings_without_a_file_are_as_recorded() {
    insta::assert_snapshot!(printed(&["config", "show"]));
}
