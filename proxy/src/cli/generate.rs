//! `deltaweir completions` and `deltaweir man`: made of the command line itself, so that they
//! cannot say anything else.

use super::outcome::{Failure, Outcome, out};
use clap::Command;
use clap_complete::Shell;
use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

/// Prints a script that completes this command line in a shell.
pub(super) fn completions(mut command: Command, shell: Shell) -> Outcome {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    print(&script)
}

/// Prints the man page of the program, or writes one for it and for each command into a directory.
pub(super) fn man(command: Command, directory: Option<&Path>) -> Outcome {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return print(&page);
    };
    let in_it = |error: io::Error| Failure(format!("{}: {error}", directory.display()));
    fs::create_dir_all(directory).map_err(in_it)?;
    clap_mangen::generate_to(command, directory).map_err(in_it)?;
    out(&format!("man pages are in {}", directory.display()))
}

fn print(bytes: &[u8]) -> Outcome {
    match io::stdout().write_all(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
