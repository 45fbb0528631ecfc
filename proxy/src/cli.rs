//! The command line.

mod ask;
mod print;
mod serve;

use crate::{
    config::{Environment, Overrides, ServeConfig},
    metrics,
};
use ask::Store;
use clap::{Args, Parser, Subcommand};
use serde_json::Value;
use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
};

/// An S3 endpoint that stores less.
#[derive(Parser)]
#[command(name = "deltaweir", version = metrics::VERSION, arg_required_else_help = true)]
struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
struct Global {
    /// The configuration file [env: DELTAWEIR_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory [env: DELTAWEIR_DATA]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server
    Serve(ServeFlags),
    /// Show what is stored and what it takes
    Stats,
    /// Show how an object is stored, and why
    Explain {
        /// s3://BUCKET/KEY
        object: String,
    },
    /// Show what a blob holds
    Inspect {
        /// The blob's id, 32 hex digits
        blob: String,
    },
    /// Delete blobs that nothing needs
    Gc {
        /// Do not wait for the grace of blobs that died lately
        #[arg(long)]
        now: bool,
    },
    /// Check or show the configuration
    Config {
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Print a page of the reference
    #[command(hide = true)]
    Reference {
        #[command(subcommand)]
        page: Page,
    },
}

#[derive(Args)]
struct ServeFlags {
    /// Address of the S3 listener [env: DELTAWEIR_LISTEN]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of the admin listener [env: DELTAWEIR_ADMIN_LISTEN]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// sqlite, or a postgres:// URL [env: DELTAWEIR_CATALOG]
    #[arg(long, value_name = "CATALOG")]
    catalog: Option<String>,
    /// Log directives, such as info or deltaweir=debug [env: DELTAWEIR_LOG]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Subcommand)]
enum ConfigAction {
    /// Say whether the configuration can be used
    Check,
    /// Print the configuration in effect, without secrets
    Show,
}

#[derive(Subcommand)]
enum Page {
    /// docs/reference/metrics.md
    Metrics,
}

/// Why a command failed, in words for whoever typed it.
struct Failure(String);

impl<E: Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

type Outcome = Result<(), Failure>;

/// Runs the program.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(message)) => {
            eprintln!("deltaweir: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Outcome {
    let Arguments { global, command } = arguments;
    let overrides = |flags: Option<ServeFlags>| {
        let flags = flags.unwrap_or(ServeFlags { listen: None, admin_listen: None, catalog: None, log: None });
        Overrides {
            config: global.config.clone(),
            data: global.data.clone(),
            listen: flags.listen,
            admin_listen: flags.admin_listen,
            catalog: flags.catalog,
            log: flags.log,
        }
    };
    let load = |flags| ServeConfig::load(&overrides(flags), &Environment::of_process());
    let ask = |call: ask::Call| -> Result<Value, Failure> {
        let config = load(None)?;
        runtime()?.block_on(Store::of(config.engine).ask(call))
    };
    let json = global.json;
    match command {
        Command::Serve(flags) => {
            let config = load(Some(flags))?;
            runtime()?.block_on(serve::serve(config))
        }
        Command::Stats => show(json, &ask(ask::Call::get("stats", &[]))?, print::stats),
        Command::Explain { object } => {
            let (bucket, key) = parse_object(&object)?;
            let call = ask::Call::get("explain", &[("bucket", bucket), ("key", key)]);
            show(json, &ask(call)?, print::outline)
        }
        Command::Inspect { blob } => show(json, &ask(ask::Call::get("inspect", &[("blob", &blob)]))?, print::outline),
        Command::Gc { now } => {
            let call = ask::Call::post("gc", &[("now", if now { "true" } else { "false" })]);
            show(json, &ask(call)?, print::outline)
        }
        Command::Config { action: ConfigAction::Check } => {
            let config = load(None)?;
            if json {
                return show(json, &serde_json::json!({ "ok": true, "warnings": config.warnings }), print::outline);
            }
            config.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
            out("the configuration is good")
        }
        Command::Config { action: ConfigAction::Show } => {
            let shown = load(None)?.shown;
            if json { show(json, &toml::from_str::<Value>(&shown)?, print::outline) } else { out(shown.trim_end()) }
        }
        Command::Reference { page: Page::Metrics } => out(metrics::reference_page().trim_end()),
    }
}

/// `s3://BUCKET/KEY`; the key may hold anything, slashes at its start too.
fn parse_object(object: &str) -> Result<(&str, &str), Failure> {
    let parts = object.strip_prefix("s3://").and_then(|rest| rest.split_once('/'));
    let parts = parts.filter(|(bucket, key)| !bucket.is_empty() && !key.is_empty());
    parts.ok_or_else(|| Failure(format!("expected s3://BUCKET/KEY, not {object:?}")))
}

fn show(json: bool, value: &Value, print: impl Fn(&Value) -> String) -> Outcome {
    if !json {
        return out(print(value).trim_end());
    }
    let text = if io::stdout().is_terminal() { serde_json::to_string_pretty(value)? } else { value.to_string() };
    out(&text)
}

/// Prints; a reader that has seen enough (`| head`) is no error.
fn out(text: &str) -> Outcome {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn objects_are_named_by_their_url() {
        let parse = |object| parse_object(object).map_err(|Failure(message)| message);
        assert_eq!(parse("s3://b/k"), Ok(("b", "k")));
        assert_eq!(parse("s3://b//k/"), Ok(("b", "/k/")));
        for object in ["b/k", "s3://b", "s3://b/", "s3:///k", ""] {
            assert!(parse(object).is_err(), "{object}");
        }
    }

    #[test]
    fn every_variable_but_the_secrets_is_a_flag_of_serve() {
        let arguments = [
            "deltaweir",
            "serve",
            "--config",
            "f",
            "--data",
            "d",
            "--listen",
            "l",
            "--admin-listen",
            "a",
            "--catalog",
            "c",
            "--log",
            "x",
        ];
        let parsed = Arguments::try_parse_from(arguments).unwrap();
        let Command::Serve(flags) = parsed.command else { panic!("this is serve") };
        assert_eq!((flags.listen.as_deref(), flags.log.as_deref()), (Some("l"), Some("x")));
        assert_eq!(parsed.global.data, Some(PathBuf::from("d")));
    }
}
