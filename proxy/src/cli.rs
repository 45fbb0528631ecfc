//! The command line.

mod adopting;
mod ask;
mod audit;
mod audit_log;
mod buckets;
mod call;
mod check;
mod convert;
mod damaged;
mod delta;
mod demo;
mod doctor;
mod fips;
mod follow;
mod generate;
mod keys;
mod list;
mod logs;
mod maintain;
mod merge;
mod outcome;
mod policy;
mod preview;
mod print;
mod private;
mod quota;
mod recover;
mod remote;
mod scrub;
mod serve;
mod status;
mod traffic;
mod users;
mod waiting;

use crate::{
    config::{ConfigError, Environment, Overrides, RemoteConfig, RemoteFlags, ServeConfig},
    engine::RecoveryOptions,
    metrics,
};
use ask::Store;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use outcome::{Failure, Outcome, note, out, runtime, show};
use serde_json::Value;
use std::{path::PathBuf, process::ExitCode};

/// An S3 endpoint that stores less.
#[derive(Parser)]
#[command(name = "deltaweir", version = metrics::BUILD, arg_required_else_help = true)]
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
    #[command(flatten)]
    remote: RemoteArguments,
}

/// A server on another machine, in place of the store of this one.
#[derive(Args)]
#[command(next_help_heading = "A server on another machine")]
struct RemoteArguments {
    /// Ask the admin listener at this address: https://HOST:PORT, or http:// on loopback
    #[arg(id = "remote", long = "remote", global = true, value_name = "URL")]
    url: Option<String>,
    /// A file with its admin token [env: DELTAWEIR_ADMIN_TOKEN: the token itself]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificates (PEM) that may sign its certificate; those of this machine if omitted
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A certificate (PEM) to show to it
    #[arg(long, global = true, value_name = "FILE")]
    client_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, global = true, value_name = "FILE")]
    client_key: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server
    Serve(ServeFlags),
    /// Check clock, disks, rights on the store, TLS, memory and open files, with a remedy for each
    Doctor,
    /// Show the store's state on one screen: health, replicas, space, waiting work
    Status,
    /// Show live traffic by operation and bucket
    Top(traffic::TopFlags),
    /// Show the newest requests of the server, or one of them step by step
    Requests(traffic::RequestsFlags),
    /// Show the newest lines of the server's log
    Logs(logs::LogFlags),
    /// Show objects, stored and saved bytes per bucket, and their cost
    Stats,
    /// Show how an object is stored, and why
    Explain {
        /// s3://BUCKET/KEY
        object: String,
        /// A version id, or null; the current version if omitted
        #[arg(long)]
        version: Option<String>,
        /// Show everything, not the first 25 lines
        #[arg(long)]
        all: bool,
    },
    /// List buckets, or keys with their form, size, stored size and ratio
    Ls(list::ListFlags),
    /// Try it: make builds, store them, show the ratio, and serve the console
    Demo(demo::DemoFlags),
    /// Show the contents of a blob, or the containers and deflate streams in an object or a file
    Inspect {
        /// A blob's id, 32 hex digits, s3://BUCKET/KEY, or the path of a file
        #[arg(value_name = "BLOB|OBJECT|FILE")]
        what: String,
        /// Compare the file's streams with those of another file
        #[arg(long, value_name = "FILE")]
        base: Option<PathBuf>,
    },
    /// Delete blobs that are no longer needed
    Gc {
        /// Skip the grace period of recently deleted blobs
        #[arg(long)]
        now: bool,
        /// Remove all files on the trash list now
        #[arg(long)]
        empty_trash: bool,
        /// Take all files off the trash list and keep them; collects nothing
        #[arg(long, conflicts_with_all = ["now", "empty_trash", "sweep"])]
        undo: bool,
        /// Search the files of every ended process again for unreferenced ones
        #[arg(long)]
        sweep: bool,
    },
    /// Verify all stored data and quarantine damaged blobs
    Scrub(scrub::ScrubFlags),
    /// Re-encode deferred content now, or the objects of a bucket or prefix
    Convert(convert::ConvertFlags),
    /// Show background jobs, or start, pause, resume or cancel one
    Jobs {
        /// The job; all jobs if omitted
        job: Option<String>,
        /// The action; shows the job if omitted
        #[arg(value_enum, requires = "job")]
        action: Option<JobCommand>,
        /// Parameters to start it with, as JSON
        #[arg(long, value_name = "JSON", requires = "action")]
        parameters: Option<String>,
    },
    /// Register the objects of a store as versions of a bucket, without moving content
    Import(adopting::ImportFlags),
    /// Write a bucket's objects as plain files, or as objects of another store
    Eject(adopting::EjectFlags),
    /// Estimate the stored size of a bucket from a sample
    Estimate(adopting::EstimateFlags),
    /// Show what a bucket's objects would take under other settings, from a sample; changes nothing
    Preview(preview::PreviewFlags),
    /// Encode a file as a delta against another one, without a server
    Delta {
        #[command(subcommand)]
        action: delta::DeltaAction,
    },
    /// Back up the catalog to the backend
    Backup {
        /// Only list the backups
        #[arg(long)]
        list: bool,
    },
    /// Restore a lost catalog from a backup and the journal
    Restore {
        /// The backup to start from; the newest if omitted
        #[arg(long, value_name = "ID")]
        backup: Option<String>,
        /// Only list the backups; needs no catalog
        #[arg(long)]
        list: bool,
        #[command(flatten)]
        trouble: recover::DamageOptions,
    },
    /// Restore a lost catalog from a backup, the journal and the manifests of newer blobs
    Rebuild {
        /// Put objects found only in manifests under their own key if it is free, not under
        /// deltaweir-recovered/
        #[arg(long)]
        in_place: bool,
        #[command(flatten)]
        trouble: recover::DamageOptions,
    },
    #[command(flatten)]
    Maintain(maintain::MaintainAction),
    /// Test the decisions of policies and grants
    Policy {
        #[command(subcommand)]
        action: policy::PolicyAction,
    },
    /// Show, rotate and verify the keys of encrypted buckets
    Keys {
        #[command(subcommand)]
        action: keys::KeysAction,
    },
    /// Show, make and change buckets while the server runs
    Buckets {
        #[command(subcommand)]
        action: buckets::BucketsAction,
    },
    /// Limit how much a bucket or user may hold
    Quota {
        #[command(subcommand)]
        action: quota::QuotaAction,
    },
    /// Join a catalog with a store that diverged from it
    Recover {
        /// Join both histories: the later write of a key is current, the other one is kept beside
        /// it
        #[arg(long, required = true)]
        merge: bool,
        /// The catalog that forked, a file or a postgres:// address; storage.catalog must be
        /// empty then
        #[arg(long, value_name = "CATALOG")]
        from: Option<String>,
        /// Accept unsealed documents up to this mutation, for a store that was sealed only later
        #[arg(long, value_name = "SEQ")]
        accept_unsealed_until: Option<i64>,
    },
    /// Show and change users, their access keys, groups and policies
    Users {
        #[command(subcommand)]
        action: users::UsersAction,
    },
    /// Verify, search or follow the audit log
    Audit {
        #[command(subcommand)]
        action: audit::AuditAction,
    },
    /// Check or show the configuration
    Config {
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write one for each command into a directory
    Man {
        /// The directory; created if it does not exist
        directory: Option<PathBuf>,
    },
    /// Print a page of the reference
    #[command(hide = true)]
    Reference {
        #[command(subcommand)]
        page: Page,
    },
}

#[derive(Args, Default)]
struct ServeFlags {
    /// Address of the S3 listener [env: DELTAWEIR_LISTEN]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of the admin listener [env: DELTAWEIR_ADMIN_LISTEN]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// Allow plain HTTP on a non-loopback admin listener
    /// [env: DELTAWEIR_ADMIN_OVER_HTTP]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    admin_over_http: Option<bool>,
    /// sqlite, or a postgres:// URL [env: DELTAWEIR_CATALOG]
    #[arg(long, value_name = "CATALOG")]
    catalog: Option<String>,
    /// Log directives, such as info or deltaweir=debug [env: DELTAWEIR_LOG]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Serve this catalog although the backend holds later changes, and discard those
    #[arg(long)]
    accept_older_catalog: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum JobCommand {
    /// Start it and follow it to its end
    Start,
    /// Follow the current run
    Follow,
    Pause,
    Resume,
    Cancel,
}

#[derive(Subcommand)]
enum ConfigAction {
    /// Check whether the configuration is valid
    Check,
    /// Print the configuration in effect, without secrets
    Show,
}

#[derive(Subcommand)]
enum Page {
    /// docs/reference/metrics.md
    Metrics,
}

/// Why a command takes no `--remote`.
const OF_HERE: &str = "this command works on this machine: leave --remote out";

/// Runs the program.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match fips::module().and_then(|_| Ok(private::keep_from_others()?)).and_then(|()| run(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(message)) => {
            note(format_args!("deltaweir: {message}"));
            ExitCode::FAILURE
        }
    }
}

fn run(Arguments { global, command }: Arguments) -> Outcome {
    let json = global.json;
    global.refuse_remote(&command)?;
    match command {
        Command::Serve(flags) => global.serve(flags),
        Command::Demo(flags) => runtime()?.block_on(serve_demo(flags)),
        Command::Doctor => runtime()?.block_on(doctor::doctor(global.load(), json)),
        Command::Status => runtime()?.block_on(status::status(global.store()?, json)),
        Command::Top(flags) => runtime()?.block_on(traffic::top(global.store()?, &flags, json)),
        Command::Logs(flags) => runtime()?.block_on(logs::logs(global.store()?, &flags, json)),
        Command::Requests(flags) => runtime()?.block_on(traffic::requests(global.store()?, &flags, json)),
        Command::Completions { shell } => generate::completions(Arguments::command(), shell),
        Command::Man { directory } => generate::man(Arguments::command(), directory.as_deref()),
        Command::Stats => show(json, &global.ask(ask::Call::get("stats", &[]))?, print::stats),
        Command::Ls(flags) => show(json, &runtime()?.block_on(list::list(global.store()?, &flags))?, list::print),
        Command::Explain { object, version, all } => global.explain(&object, version.as_deref(), all),
        Command::Inspect { what, base: None } if !is_file(&what) => global.inspect(&what),
        Command::Inspect { what, base } => delta::inspect(&PathBuf::from(what), base.as_deref(), json),
        Command::Gc { now, empty_trash, undo, sweep } => {
            let wishes = [("now", now), ("empty_trash", empty_trash), ("undo", undo), ("sweep", sweep)];
            show(json, &global.ask(ask::Call::post("gc", &wishes.map(flag)))?, print::outline)
        }
        Command::Scrub(flags) => {
            let report = runtime()?.block_on(scrub::run(global.store()?, &flags, json))?;
            show(json, &report, scrub::print)?;
            scrub::verdict(&report)
        }
        Command::Convert(flags) => {
            show(json, &runtime()?.block_on(convert::convert(flags, global.store()?, json))?, print::outline)
        }
        Command::Jobs { job: None, .. } => show(json, &global.ask(ask::Call::get("jobs", &[]))?, print::jobs),
        Command::Jobs { job: Some(job), action, parameters } => {
            show(json, &global.job(&job, action, parameters.as_deref())?, print::outline)
        }
        Command::Import(flags) => adopting::import(global.store()?, &flags, json),
        Command::Eject(flags) => adopting::eject(global.store()?, &flags, json),
        Command::Estimate(flags) => adopting::run_estimate(&global.load()?, flags, json),
        Command::Preview(flags) => {
            show(json, &runtime()?.block_on(preview::preview(global.store()?, &flags))?, preview::print)
        }
        Command::Delta { action } => delta::run(action, json),
        Command::Backup { list: true } => show(json, &global.ask(ask::Call::get("backups", &[]))?, print::outline),
        Command::Backup { list: false } => {
            show(json, &global.job("backup", Some(JobCommand::Start), None)?, print::outline)
        }
        Command::Restore { list: true, .. } => runtime()?.block_on(recover::list(global.load()?, json)),
        Command::Restore { backup, list: false, trouble } => {
            let options = recover::options(backup, &trouble);
            runtime()?.block_on(recover::recover(global.load()?, options, json))
        }
        Command::Rebuild { in_place, trouble } => {
            let options = RecoveryOptions { manifests: true, in_place, ..recover::options(None, &trouble) };
            runtime()?.block_on(recover::recover(global.load()?, options, json))
        }
        Command::Maintain(action) => show(json, &global.ask(maintain::call(&action)?)?, print::outline),
        Command::Policy { action } => show(json, &global.ask(policy::call(&action)?)?, policy::print),
        Command::Keys { action } => global.keys(&action),
        Command::Buckets { action } => show(json, &global.ask(buckets::call(&action))?, buckets::print),
        Command::Quota { action } => show(json, &global.ask(quota::call(&action)?)?, quota::print),
        Command::Recover { merge: _, from, accept_unsealed_until } => {
            let options = RecoveryOptions { accept_unsealed_until, ..recover::merge_options() };
            runtime()?.block_on(merge::merge(|| Ok(global.load()?), from, options, json))
        }
        Command::Users { action } => {
            let (call, print) = users::call(action)?;
            show(json, &global.ask(call)?, print)
        }
        Command::Audit { action } if global.remote.url.is_some() => {
            runtime()?.block_on(audit::run_remote(global.store()?, &action, json))
        }
        Command::Audit { action } => audit::run(global.load()?, &action, json),
        Command::Config { action: ConfigAction::Check } => global.check_config(),
        Command::Config { action: ConfigAction::Show } => {
            let shown = global.load()?.shown;
            if json { show(json, &toml::from_str::<Value>(&shown)?, print::outline) } else { out(shown.trim_end()) }
        }
        Command::Reference { page: Page::Metrics } => out(metrics::reference_page().trim_end()),
    }
}

/// A parameter of the admin API that is set or not.
fn flag((name, is_set): (&'static str, bool)) -> (&'static str, &'static str) {
    (name, if is_set { "true" } else { "false" })
}

impl Global {
    fn overrides(&self, flags: ServeFlags) -> Overrides {
        Overrides {
            config: self.config.clone(),
            data: self.data.clone(),
            listen: flags.listen,
            admin_listen: flags.admin_listen,
            admin_over_http: flags.admin_over_http,
            catalog: flags.catalog,
            log: flags.log,
        }
    }

    /// Refuses flags about another machine where a command works on this one. What reads the
    /// configuration is refused by [`Global::load`].
    fn refuse_remote(&self, command: &Command) -> Outcome {
        let RemoteArguments { url, token_file, ca_file, client_cert, client_key } = &self.remote;
        let alone = token_file.is_some() || ca_file.is_some() || client_cert.is_some() || client_key.is_some();
        let is_of_here = match command {
            Command::Inspect { what, base } => base.is_some() || is_file(what),
            Command::Serve(_) | Command::Doctor | Command::Demo(_) | Command::Delta { .. } => true,
            Command::Completions { .. } | Command::Man { .. } | Command::Reference { .. } => true,
            _ => false,
        };
        match url {
            None if alone => Err(Failure("which server? Name it with --remote https://HOST:PORT".into())),
            Some(_) if is_of_here => Err(Failure(OF_HERE.into())),
            _ => Ok(()),
        }
    }

    /// The configuration of this process.
    fn load(&self) -> Result<ServeConfig, ConfigError> {
        if self.remote.url.is_some() {
            return Err(ConfigError::whole(OF_HERE));
        }
        ServeConfig::load(&self.overrides(ServeFlags::default()), &Environment::of_process())
    }

    fn store(&self) -> Result<Store, ConfigError> {
        let overrides = self.overrides(ServeFlags::default());
        let environment = Environment::of_process();
        if let Some(url) = self.remote.url.clone() {
            let RemoteArguments { token_file, ca_file, client_cert, client_key, .. } = &self.remote;
            let [token_file, ca_file, client_cert, client_key] =
                [token_file, ca_file, client_cert, client_key].map(Clone::clone);
            let flags = RemoteFlags { url, token_file, ca_file, client_cert, client_key };
            return Ok(Store::Elsewhere(Box::new(RemoteConfig::load(&flags, &environment)?)));
        }
        let data = ServeConfig::data_directory(&overrides, &environment)?;
        Ok(Store::at(data, move || ServeConfig::load(&overrides, &environment)))
    }

    /// Asks the server, or the store where none runs.
    fn ask(&self, call: ask::Call) -> Result<Value, Failure> {
        runtime()?.block_on(waiting::ask(self.store()?, &call))
    }

    fn serve(&self, flags: ServeFlags) -> Outcome {
        let accept_older_catalog = flags.accept_older_catalog;
        let overrides = self.overrides(flags);
        let load = move || ServeConfig::load(&overrides, &Environment::of_process());
        let mut config = load()?;
        config.engine.safety.accept_older_catalog = accept_older_catalog;
        runtime()?.block_on(serve::serve(config, Box::new(load)))
    }

    fn explain(&self, object: &str, version: Option<&str>, all: bool) -> Outcome {
        let (bucket, key) = parse_object(object)?;
        let asked = [("bucket", bucket), ("key", key), ("version", version.unwrap_or_default())];
        let told = self.ask(ask::Call::get("explain", &asked))?;
        show(self.json, &told, if all { print::outline } else { print::explanation })
    }

    fn inspect(&self, what: &str) -> Outcome {
        if is_blob(what) {
            return show(self.json, &self.ask(ask::Call::get("inspect", &[("blob", what)]))?, print::outline);
        }
        let (bucket, key) = parse_object(what)?;
        let told = self.ask(ask::Call::post("streams", &[("bucket", bucket), ("key", key)]))?;
        show(self.json, &told, print::inside)
    }

    /// Asks about the keys, prints the answer, and fails where it tells of a fault.
    fn keys(&self, action: &keys::KeysAction) -> Outcome {
        if let keys::KeysAction::Reencrypt { bucket } = action {
            let report = runtime()?.block_on(keys::reencrypt(self.store()?, bucket, self.json))?;
            return show(self.json, &report, print::outline);
        }
        let (call, print) = keys::call(action);
        let told = self.ask(call)?;
        show(self.json, &told, print)?;
        keys::verdict(action, &told)
    }

    /// One job: what it does, or what was done about it.
    fn job(&self, job: &str, action: Option<JobCommand>, parameters: Option<&str>) -> Result<Value, Failure> {
        let path = format!("jobs/{job}");
        let act = |action| self.ask(ask::Call::post(&path, &[("action", action)]));
        match action {
            None => self.ask(ask::Call::get(&path, &[])),
            Some(JobCommand::Start) => {
                let parameters = parameters
                    .map_or(Ok(Value::Null), serde_json::from_str)
                    .map_err(|error| Failure(format!("--parameters is not JSON: {error}")))?;
                runtime()?.block_on(follow::start(self.store()?, job, parameters, self.json))
            }
            Some(JobCommand::Follow) => runtime()?.block_on(follow::running(self.store()?, job, self.json)),
            Some(JobCommand::Pause) => act("pause"),
            Some(JobCommand::Resume) => act("resume"),
            Some(JobCommand::Cancel) => act("cancel"),
        }
    }

    fn check_config(&self) -> Outcome {
        let config = self.load()?;
        check::check(&config)?;
        if self.json {
            return show(true, &serde_json::json!({ "ok": true, "warnings": config.warnings }), print::outline);
        }
        config.warnings.iter().for_each(|warning| note(format_args!("warning: {warning}")));
        out("the configuration is good")
    }
}

/// Makes the demo's store, and serves it.
async fn serve_demo(flags: demo::DemoFlags) -> Outcome {
    let Some(demo) = demo::demo(flags).await? else { return Ok(()) };
    let overrides = demo.overrides.clone();
    let load = move || ServeConfig::load(&overrides, &Environment::default());
    Box::pin(serve::serve(load()?, Box::new(load))).await
}

/// Whether this is a blob's id. A file of such a name is shown as `./NAME`.
fn is_blob(what: &str) -> bool {
    what.len() == 32 && what.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether this is neither a blob's id nor an object.
fn is_file(what: &str) -> bool {
    !is_blob(what) && !what.starts_with("s3://")
}

/// `s3://BUCKET/KEY`; the key may hold anything, slashes at its start too.
fn parse_object(object: &str) -> Result<(&str, &str), Failure> {
    let parts = object.strip_prefix("s3://").and_then(|rest| rest.split_once('/'));
    let parts = parts.filter(|(bucket, key)| !bucket.is_empty() && !key.is_empty());
    parts.ok_or_else(|| Failure(format!("expected s3://BUCKET/KEY, not {object:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let arguments =
            "deltaweir serve --config f --data d --listen l --admin-listen a --catalog c --log x".split(' ');
        let parsed = Arguments::try_parse_from(arguments).unwrap();
        let Command::Serve(flags) = parsed.command else { panic!("this is serve") };
        assert_eq!((flags.listen.as_deref(), flags.log.as_deref()), (Some("l"), Some("x")));
        assert_eq!(parsed.global.data, Some(PathBuf::from("d")));
    }
}
