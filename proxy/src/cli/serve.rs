//! `deltaweir serve`: from a configuration to a running server, and to its end. SIGHUP reads anew
//! what can change meanwhile.

use super::{
    audit_log, damaged, fips,
    outcome::{Failure, Outcome, out},
    private,
};
use crate::{
    admin::{Access, AdminService},
    audit::{AuditLog, Entry, Kind},
    auth::{Accounts, Credentials, FileAccounts, admin_token, root},
    config::{AccessLogConfig, ConfigError, LogConfig, LogFormat, OidcConfig, Prices, ServeConfig, ServerConfig},
    engine::{Engine, EngineError},
    lines::{LinesOf, LogLines, Stderr, settle_all},
    log_tail::{KeepsTail, LogTail},
    memory,
    metrics::Metrics,
    oidc::Oidc,
    server::{AccessLog, Certificate, S3Service, Server, Traces, TracesConfig},
    stores::open_engine,
    webhooks::{WebhookConfig, Webhooks},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use secrecy::SecretString;
use std::{
    collections::BTreeMap,
    io::IsTerminal as _,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};
use tracing_subscriber::{EnvFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// Descriptors that are not for connections and their requests: the catalog's, listeners, jobs,
/// logs.
const DESCRIPTORS_KEPT: u64 = 64;
/// Descriptors of one connection: its socket, and a file its request reads or writes.
const DESCRIPTORS_PER_CONNECTION: u64 = 2;

/// How long the last traces may take when the server ends.
const TRACES_END: Duration = Duration::from_secs(5);

/// How long the last lines of all logs may take when the server ends.
const LAST_LINES: Duration = Duration::from_secs(2);
/// And when it is told to for the second time.
const LAST_LINES_AT_ONCE: Duration = Duration::from_secs(1);

/// Loads the configuration again, from the same flags, file and environment.
pub(super) type Load = Box<dyn Fn() -> Result<ServeConfig, ConfigError> + Send>;
/// Replaces the log's filter.
type SetFilter = Arc<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// The log, and what decides which lines it has.
struct Logs {
    lines: Arc<LogLines>,
    tail: Arc<LogTail>,
    set_filter: SetFilter,
}

/// Runs until SIGTERM or SIGINT, then lets requests end. A damaged SQLite catalog is made again in
/// between.
pub(super) async fn serve(config: ServeConfig, load: Load) -> Outcome {
    // Before anything else: until somebody listens for it, SIGHUP ends a process.
    let _hangups = signal(SignalKind::hangup())?;
    let logs = start_log(&config.log)?;
    let _last = LastLines;
    if config.server.lock_memory {
        private::keep_from_swap()?;
    }
    if let Some(module) = fips::module()? {
        tracing::info!(module, "a FIPS build: cryptography is the module's");
    }
    Box::pin(until_stopped(config, load, &logs)).await
}

/// Writes the last lines of every log however the server ends: told to, by an error, or by a panic.
struct LastLines;

impl Drop for LastLines {
    fn drop(&mut self) {
        settle_all(LAST_LINES);
    }
}

async fn until_stopped(mut config: ServeConfig, load: Load, logs: &Logs) -> Outcome {
    let (load, stop) = (Arc::new(Mutex::new(load)), stop_signal()?);
    if damaged::is_rebuilding(&config) {
        config = Box::pin(rebuilt(config, &load)).await?;
    }
    loop {
        bound_connections(&mut config)?;
        config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let listen = match serve_once(config, &load, logs, stop.clone()).await? {
            End::Stopped => return Ok(()),
            End::Damaged(listen) => listen,
        };
        let again = load_again(&load)?;
        config = Box::pin(rebuilt(again, &load)).await?;
        (config.server.listen, config.server.admin_listen) = (listen.s3, listen.admin);
    }
}

/// Makes the catalog again; the configuration to go on with, since keys are taken out of one when
/// it is used.
async fn rebuilt(config: ServeConfig, load: &Mutex<Load>) -> Result<ServeConfig, Failure> {
    Box::pin(damaged::rebuild(config)).await?;
    load_again(load)
}

fn load_again(load: &Mutex<Load>) -> Result<ServeConfig, Failure> {
    let load = load.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(load()?)
}

/// Why a server ended.
enum End {
    /// It was told to.
    Stopped,
    /// The catalog is damaged and is to be made again. Where the server listened, so that it does
    /// so again.
    Damaged(Listen),
}

/// The addresses of a server that was bound.
struct Listen {
    s3: SocketAddr,
    admin: SocketAddr,
}

async fn serve_once(
    config: ServeConfig,
    load: &Arc<Mutex<Load>>,
    logs: &Logs,
    stop: watch::Receiver<bool>,
) -> Result<End, Failure> {
    let metrics = Metrics::new()?;
    logs.lines.count_in(metrics.log_failures_total.clone());
    let may_rebuild = damaged::may_rebuild(&config);
    let mut server = Server::bind(config.server.clone()).await?;
    let listen = Listen { s3: server.s3_address()?, admin: server.admin_address()? };
    let data = config.engine.data.clone();
    let keeping_within = memory::give_back(held_at_most(&config), metrics.allocator_given_back_bytes_total.clone());
    let engine = match open_engine(config.engine, &config.stores, metrics.engine.clone()).await {
        Err(EngineError::Damaged(why)) if may_rebuild => {
            tracing::error!(why, "the catalog is damaged");
            return Ok(End::Damaged(listen));
        }
        opened => opened?,
    };
    server.bind_socket(&data)?;
    deliver_events(&engine, config.webhooks)?;

    let (root, printed_once) = match root::in_effect(config.root, !config.users.is_empty(), &data)? {
        Some(pair) => (Some(pair.credentials), pair.printed_once),
        None => (None, None),
    };
    let scheme = if server.is_tls() { "https" } else { "http" };
    if let (Some(root), Some(secret)) = (&root, &printed_once) {
        say(&first_steps(root, secret, &config.server.region, &format!("{scheme}://{}", listen.s3), &data));
    }
    let admin_token = token_of(&config.server, &data)?;
    introduce(&server, &listen, config.server.admin_token.is_some(), &data);

    let file = FileAccounts { root: root.clone(), users: config.users, roles: config.roles };
    let accounts = Accounts::open(engine.accounts.clone(), file).await?;
    let s3 = S3Service::new(&config.server, engine.clone(), metrics.clone(), accounts.clone());
    let access_log = log_requests(&s3, config.access_log)?;
    let traces = send_traces(&s3, config.traces)?;
    let (ending, end) = watch::channel(false);
    let access = Access::new(&config.server, &admin_token);
    let audit = config.audit.map(|audit| audit_log::open(audit, &data, &metrics)).transpose()?;
    let admin = AdminService::new(engine.clone(), metrics, accounts.clone(), Some(access), end.clone());
    admin.show_requests(s3.recent());
    admin.show_log(logs.tail.clone());
    admin.preview_in(&data);
    equip(&admin, config.prices, config.oidc)?;
    seed(&accounts, audit.as_ref()).await;
    let following = tokio::spawn(accounts.clone().keep_fresh());
    let auditing = audit.clone().map(|log| {
        s3.audit_to(log.clone());
        admin.audit_to(log.clone());
        tokio::spawn(audit_log::write_down_jobs(log, engine.jobs.endings()))
    });
    let reload = Reload {
        load: load.clone(),
        access_log: access_log.clone(),
        set_filter: logs.set_filter.clone(),
        root,
        accounts,
        audit,
        certificate: server.certificate(),
    };
    let reloading = tokio::spawn(reload.at_every(signal(SignalKind::hangup())?));
    let serving = async { tokio::join!(server.run(s3, admin, end), until_end(&engine, stop, may_rebuild, &ending)) };
    let (in_time, is_damaged) = tokio::select! {
        ended = serving => ended,
        never = keeping_within => match never {},
    };
    reloading.abort();
    following.abort();
    end_records(traces, access_log).await;
    engine.shutdown().await;
    if let Some(auditing) = auditing {
        auditing.abort();
    }
    tracing::info!(in_time, "stopped");
    Ok(if is_damaged { End::Damaged(listen) } else { End::Stopped })
}

/// Says where it listens.
fn introduce(server: &Server, listen: &Listen, has_token: bool, data: &Path) {
    let scheme = if server.is_tls() { "https" } else { "http" };
    let admin_scheme = server.admin_scheme();
    say(&format!("S3 on {scheme}://{}, admin on {admin_scheme}://{}", listen.s3, listen.admin));
    say(&console_line(admin_scheme, listen.admin, has_token, data));
    tracing::info!(version = crate::metrics::VERSION, commit = crate::metrics::COMMIT, "serving");
    warn_about_reach(listen.s3, server.is_tls());
}

/// Brings what is said of the last requests to whoever wants to know.
async fn end_records(traces: Option<Arc<Traces>>, access_log: Option<Arc<AccessLog>>) {
    if let Some(traces) = traces {
        traces.end(TRACES_END).await;
    }
    if let Some(access_log) = access_log {
        access_log.settle(LAST_LINES);
    }
}

/// Prints. What cannot be printed, on a disk that is full, is no reason not to serve.
fn say(text: &str) {
    if let Err(Failure(error)) = out(text) {
        tracing::warn!(error, "standard output cannot be written to");
    }
}

/// Tells the admin API what the configuration has for it.
fn equip(admin: &AdminService, prices: Option<Prices>, oidc: Option<OidcConfig>) -> Outcome {
    if let Some(prices) = prices {
        admin.price_by(prices);
    }
    if let Some(oidc) = oidc {
        admin.sign_in_by(Oidc::new(oidc).map_err(Failure)?);
    }
    Ok(())
}

fn deliver_events(engine: &Engine, webhooks: BTreeMap<String, WebhookConfig>) -> Outcome {
    if !webhooks.is_empty() {
        engine.deliver_events(Arc::new(Webhooks::new(webhooks).map_err(Failure)?));
    }
    Ok(())
}

/// The configured admin token, or the data directory's, which is made when there is none.
fn token_of(config: &ServerConfig, data: &Path) -> std::io::Result<SecretString> {
    match &config.admin_token {
        Some(token) => Ok(token.clone()),
        None => admin_token::load_or_create(data),
    }
}

/// Opens the access log where it has lines of its own.
fn log_requests(s3: &S3Service, config: Option<AccessLogConfig>) -> Result<Option<Arc<AccessLog>>, Failure> {
    let Some(AccessLogConfig { format, path }) = config else { return Ok(None) };
    let log = Arc::new(AccessLog::open(format, path, s3.metrics().access_log_failures_total.clone())?);
    s3.log_to(log.clone());
    Ok(Some(log))
}

/// Sends a span of each request where the configuration says so.
fn send_traces(s3: &S3Service, config: Option<TracesConfig>) -> Result<Option<Arc<Traces>>, Failure> {
    let Some(config) = config else { return Ok(None) };
    let traces = Arc::new(Traces::new(config, s3.metrics().trace_spans_total.clone()).map_err(Failure)?);
    s3.trace_to(traces.clone());
    Ok(Some(traces))
}

/// Ends the server when the process is told to, or the catalog is found damaged and may be made
/// again; whether it is.
async fn until_end(
    engine: &Engine,
    mut stop: watch::Receiver<bool>,
    may_rebuild: bool,
    ending: &watch::Sender<bool>,
) -> bool {
    let damaged = async {
        match may_rebuild {
            true => drop(engine.damaged().await),
            false => std::future::pending().await,
        }
    };
    let is_damaged = tokio::select! {
        _ = stop.wait_for(|stop| *stop) => false,
        () = damaged => true,
    };
    // Nobody listens any more when the server ended by itself.
    let _ = ending.send(true);
    is_damaged
}

/// What SIGHUP changes: users that the catalog lacks, roles, the certificate, the log's filter. It
/// opens the access log's file anew, so that it can be rotated.
/// Everything else takes a restart.
struct Reload {
    load: Arc<Mutex<Load>>,
    access_log: Option<Arc<AccessLog>>,
    set_filter: SetFilter,
    root: Option<Credentials>,
    accounts: Arc<Accounts>,
    audit: Option<Arc<AuditLog>>,
    certificate: Option<Arc<Certificate>>,
}

impl Reload {
    async fn at_every(self, mut hangups: Signal) {
        while hangups.recv().await.is_some() {
            match self.apply().await {
                Ok(()) => tracing::info!("users, certificate and log filter were reloaded"),
                Err(Failure(error)) => {
                    tracing::error!(error, "nothing was reloaded: the configuration is invalid")
                }
            }
        }
    }

    /// All of it, or nothing.
    async fn apply(&self) -> Result<(), Failure> {
        let config = load_again(&self.load)?;
        let filter = filter_of(&config.log)?;
        // Whatever can fail comes before the first thing that changes.
        let certificate = match (&self.certificate, &config.server.tls) {
            (Some(certificate), Some(files)) => Some((certificate, Certificate::read(files)?)),
            (None, None) => None,
            _ => return Err(Failure("TLS is turned on or off by a restart only".into())),
        };
        let access_log = match &self.access_log {
            Some(log) => Some((log, log.open_anew()?)),
            None => None,
        };
        (self.set_filter)(filter).map_err(Failure)?;
        if let Some((certificate, fresh)) = certificate {
            certificate.replace(fresh);
        }
        if let Some((log, fresh)) = access_log {
            log.go_on_in(fresh);
        }
        // Without a root pair in the configuration it is the one this process started with, unless
        // users took its place.
        let root = config.root.or_else(|| self.root.clone());
        self.accounts.replace_file(FileAccounts { root, users: config.users, roles: config.roles }).await;
        seed(&self.accounts, self.audit.as_ref()).await;
        Ok(())
    }
}

/// Adds to the catalog the users that only the file has, and writes it down.
async fn seed(accounts: &Accounts, audit: Option<&Arc<AuditLog>>) {
    let added = accounts.seed().await;
    if let (Some(audit), false) = (audit, added.is_empty()) {
        let change = format!("added from the configuration file: {}", added.join(", "));
        audit.record(Entry::new(Kind::Admin, "users").with("user", "file").with("change", change)).await;
    }
}

/// How much memory is held before some is given back: any, where pages are locked, since those
/// cannot be.
fn held_at_most(config: &ServeConfig) -> u64 {
    if config.server.lock_memory { u64::MAX } else { config.engine.memory_bytes_max }
}

/// Asks for as many descriptors as this process may have, and lets no more connections in than they
/// are enough for.
fn bound_connections(config: &mut ServeConfig) -> Result<(), Failure> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let Some(descriptors) = (if raised { maximum } else { current }) else { return Ok(()) };
    let connections = connections_within(descriptors, config.server.connections_max).ok_or_else(|| {
        Failure(format!("{descriptors} descriptors are too few to serve with: raise RLIMIT_NOFILE (ulimit -n)"))
    })?;
    if connections < config.server.connections_max {
        let wanted = config.server.connections_max;
        tracing::warn!(descriptors, connections, wanted, "limits.connections_max is bounded by RLIMIT_NOFILE");
        config.server.connections_max = connections;
    }
    Ok(())
}

/// How many descriptors a process of this user may have; `None`: any number.
pub(super) fn descriptors_max() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// How many of `wanted` connections so many descriptors are enough for; `None` when not for one.
pub(super) fn connections_within(descriptors: u64, wanted: usize) -> Option<usize> {
    let most = descriptors.checked_sub(DESCRIPTORS_KEPT)? / DESCRIPTORS_PER_CONNECTION;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    (most > 0).then_some(wanted.min(most))
}

/// Where the console is, and what opens it.
fn console_line(scheme: &str, address: SocketAddr, has_token: bool, data: &Path) -> String {
    let token =
        if has_token { "server.admin_token".into() } else { format!("cat {}", quoted(&whole(data, "admin-token"))) };
    format!("console on {scheme}://{address}/, its token: {token}")
}

/// A path below the data directory, for another terminal: that may stand elsewhere.
fn whole(data: &Path, name: &str) -> String {
    std::path::absolute(data).unwrap_or_else(|_| data.to_owned()).join(name).display().to_string()
}

/// A word for a shell to take as it is, whatever stands in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// What a newcomer pastes. Printed once: the secret is in the data directory afterwards.
fn first_steps(root: &Credentials, secret: &str, region: &str, endpoint: &str, data: &Path) -> String {
    format!(
        "\nA root key pair was made for this store. It is printed this once and kept in {}.\n{}",
        root::FILE_NAME,
        steps(root, secret, region, endpoint, data)
    )
}

/// Lines to paste: where the store is, its keys, and two builds of this program with their ratio.
pub(super) fn steps(root: &Credentials, secret: &str, region: &str, endpoint: &str, data: &Path) -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "deltaweir".into());
    let (id, program, data) = (&root.access_key_id, quoted(&program.display().to_string()), quoted(&whole(data, "")));
    format!(
        "\nexport AWS_ENDPOINT_URL={endpoint}\n\
         export AWS_ACCESS_KEY_ID={id}\n\
         export AWS_SECRET_ACCESS_KEY={secret}\n\
         export AWS_REGION={region} AWS_DEFAULT_REGION={region}\n\n\
         aws s3 mb s3://first\n\
         aws s3 cp {program} s3://first/build-1\n\
         (cat {program}; date) | aws s3 cp - s3://first/build-2\n\
         {program} --data {data} ls s3://first\n"
    )
}

fn warn_about_reach(address: SocketAddr, tls: bool) {
    if !address.ip().is_loopback() && !tls {
        tracing::warn!(%address, "the S3 listener is plain HTTP: others on the network can read the traffic");
    }
}

pub(super) fn filter_of(log: &LogConfig) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(&log.filter).map_err(|error| Failure(format!("log.filter: {error}")))
}

/// Log lines go to stderr, so that what commands print stays apart. A line that cannot be written,
/// on a disk that is full or to a reader that has gone, is lost and stops nothing: to say so on
/// stderr as well would panic wherever the line came from. Nobody waits for its reader either.
fn start_log(log: &LogConfig) -> Result<Logs, Failure> {
    let filter = filter_of(log)?;
    let lines = Arc::new(LogLines::start(LinesOf::MainLog, Box::new(Stderr::open()?))?);
    let tail = Arc::new(LogTail::default());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines.clone());
    let builder = builder.log_internal_errors(false);
    let set_filter: SetFilter = match log.format {
        LogFormat::Text => {
            let builder = builder.with_ansi(std::io::stderr().is_terminal()).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.finish().with(KeepsTail(tail.clone())).init();
            Arc::new(move |filter: EnvFilter| handle.reload(filter).map_err(|error| error.to_string()))
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.finish().with(KeepsTail(tail.clone())).init();
            Arc::new(move |filter: EnvFilter| handle.reload(filter).map_err(|error| error.to_string()))
        }
    };
    Ok(Logs { lines, tail, set_filter })
}

/// True once SIGTERM or SIGINT came; a second one ends the process as soon as its last lines are
/// written.
fn stop_signal() -> std::io::Result<watch::Receiver<bool>> {
    let (sender, receiver) = watch::channel(false);
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! {
                _ = terminate.recv() => (),
                _ = interrupt.recv() => (),
            }
            if !first {
                settle_all(LAST_LINES_AT_ONCE);
                std::process::exit(130);
            }
            tracing::info!("stopping");
            let _ = sender.send(true);
        }
    });
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3_wire::sigv4::SecretKey;

    #[test]
    fn connections_leave_descriptors_for_what_they_ask_for() {
        assert_eq!(connections_within(1 << 20, 4096), Some(4096));
        assert_eq!(connections_within(128, 4096), Some(32));
        assert_eq!(connections_within(128, 8), Some(8));
        assert_eq!(connections_within(65, 8), None);
        assert_eq!(connections_within(10, 8), None);
    }

    #[test]
    fn what_is_printed_can_be_pasted() {
        let root = Credentials { access_key_id: "DWKEY".into(), secret: SecretKey::new("word") };
        let text = first_steps(&root, "word", "us-east-1", "http://127.0.0.1:9000", Path::new("data"));
        assert!(text.contains("\nexport AWS_ENDPOINT_URL=http://127.0.0.1:9000\nexport AWS_ACCESS_KEY_ID=DWKEY\n"));
        assert!(text.contains("\nexport AWS_SECRET_ACCESS_KEY=word\n") && text.contains("\naws s3 mb s3://first\n"));
        let here = std::env::current_dir().unwrap();
        assert!(text.contains(&format!(" --data '{}/data/' ls s3://first\n", here.display())), "{text}");
        let address = SocketAddr::from(([127, 0, 0, 1], 9001));
        let line = console_line("http", address, false, Path::new("/srv/data"));
        assert_eq!(line, "console on http://127.0.0.1:9001/, its token: cat '/srv/data/admin-token'");
        let line = console_line("http", address, false, Path::new("/srv/ada's data"));
        assert!(line.ends_with(r": cat '/srv/ada'\''s data/admin-token'"), "{line}");
        assert!(console_line("https", address, true, Path::new("x")).ends_with("its token: server.admin_token"));
    }
}
