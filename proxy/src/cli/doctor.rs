//! `deltaweir doctor`: whether this machine and the store can do what the configuration asks of
//! them, with a remedy for what cannot. It changes nothing: an object that it stores to try the
//! rights is removed again.

mod finding;
mod machine;
mod store;

use super::{
    ask,
    check::check,
    fips,
    outcome::{Failure, Outcome, out, show},
    print::table,
    private,
};
use crate::{
    config::{ConfigError, ServeConfig},
    engine::{KeyProvider, ProviderError},
    key_providers::try_out,
};
use finding::{Check, State};
use serde_json::json;
use std::{net::TcpListener, path::PathBuf, time::SystemTime};

/// Looks at everything, prints it, and fails when something does not work.
pub(super) async fn doctor(loaded: Result<ServeConfig, ConfigError>, json: bool) -> Outcome {
    let checks = match loaded {
        Err(error) => vec![Check::failed("configuration", error.to_string(), "deltaweir config check says it again")],
        Ok(config) => Box::pin(examine(config)).await,
    };
    let failed = checks.iter().filter(|check| check.state == State::Failed).count();
    if json {
        show(true, &json!({ "ok": failed == 0, "checks": checks }), |_| String::new())?;
    } else {
        out(printed(&checks).trim_end())?;
    }
    match failed {
        0 => Ok(()),
        1 => Err(Failure("1 check failed".into())),
        failed => Err(Failure(format!("{failed} checks failed"))),
    }
}

async fn examine(config: ServeConfig) -> Vec<Check> {
    let mut checks = vec![match check(&config) {
        Ok(()) => Check::ok("configuration", "good"),
        Err(Failure(why)) => Check::failed("configuration", why, "mend this key; serve would refuse it"),
    }];
    for warning in &config.warnings {
        checks.push(Check::warning("configuration", warning, "see docs/reference/configuration.md"));
    }
    // Without its module a FIPS build does not come here.
    checks.extend(fips::module().ok().flatten().map(|module| Check::ok("cryptography", module)));
    checks.extend(config.server.tls.as_ref().map(|files| certificate(files, SystemTime::now())));
    checks.push(machine::memory(config.engine.memory_bytes_max));
    if config.server.lock_memory {
        checks.push(match private::check_lockable() {
            Ok(()) => Check::ok("locked memory", "this process may lock all that it takes"),
            Err(Failure(why)) => Check::failed("locked memory", why, "raise the limit, or turn server.lock_memory off"),
        });
    }
    checks.push(machine::open_files(config.server.connections_max));
    checks.push(machine::data_directory(&config.engine.data));
    checks.extend(machine::disks(&config.engine.data, &config.stores.backends));
    for (name, backend) in &config.stores.backends {
        checks.extend(store::examine(name, backend).await);
    }
    for provider in &config.engine.key_providers.all {
        checks.push(key_provider(&**provider).await);
    }
    let (listen, data) = ([config.server.listen, config.server.admin_listen], config.engine.data.clone());
    checks.extend(Box::pin(server(config, data, &listen)).await);
    checks
}

/// Whether a provider wraps and unwraps. It keeps nothing of what it is given.
async fn key_provider(provider: &dyn KeyProvider) -> Check {
    let (check, key) = (format!("key provider {}", provider.kind()), provider.key());
    match try_out(provider).await {
        Ok(()) => Check::ok(check, format!("key {key} wraps and unwraps")),
        Err(ProviderError::Unavailable(why)) => Check::failed(
            check,
            format!("key {key}: {why}"),
            "see that its address is right and that it runs and is unsealed",
        ),
        Err(ProviderError::Refused(why)) => Check::failed(
            check,
            format!("key {key}: {why}"),
            "see that the key is there and that this server may encrypt and decrypt with it",
        ),
    }
}

/// The server, when one runs; otherwise whether one could listen.
async fn server(config: ServeConfig, data: PathBuf, listen: &[std::net::SocketAddr]) -> Vec<Check> {
    if ask::is_served(&data).await {
        let told = ask::Store::of(config).ask(ask::Call::get("overview", &[])).await;
        let reason = told.map(|told| told["health"]["reason"].as_str().map(str::to_owned));
        return vec![match reason {
            Ok(None) => Check::ok("server", "runs and is ready"),
            Ok(Some(reason)) => Check::failed("server", format!("not ready: {reason}"), "deltaweir status shows more"),
            Err(Failure(why)) => Check::failed("server", why, "look at its log"),
        }];
    }
    let free = |address: &std::net::SocketAddr| match TcpListener::bind(address) {
        Ok(_) => Check::ok("listener", format!("{address} is free")),
        Err(error) => Check::failed(
            "listener",
            format!("{address}: {error}"),
            "end the program that listens there, or set server.listen and server.admin_listen to other addresses",
        ),
    };
    listen.iter().map(free).collect()
}

/// How long before its end a certificate is worth a warning.
const CERTIFICATE_DAYS_MIN: u64 = 14;

fn certificate(files: &crate::config::TlsFiles, now: SystemTime) -> Check {
    let renew = "renew it and send SIGHUP; open connections go on";
    match crate::server::expiry(files) {
        // That it cannot be read is said about the configuration.
        Err(error) => Check::failed("certificate", error.to_string(), "set server.tls_cert and server.tls_key"),
        Ok(None) => Check::ok("certificate", "can be read"),
        Ok(Some(end)) => {
            let shown = s3_wire::timestamp::iso8601(end);
            match end.duration_since(now).map(|left| left.as_secs() / 86_400) {
                Err(_) => Check::failed("certificate", format!("expired at {shown}"), renew),
                Ok(days) if days < CERTIFICATE_DAYS_MIN => {
                    Check::warning("certificate", format!("expires in {days} days, at {shown}"), renew)
                }
                Ok(_) => Check::ok("certificate", format!("good until {shown}")),
            }
        }
    }
}

/// A line for each check, and below it what to do.
fn printed(checks: &[Check]) -> String {
    let row = |check: &Check| {
        let state = match check.state {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Failed => "FAILED",
        };
        [state.to_owned(), check.check.clone(), check.detail.clone()]
    };
    let lines = table(&checks.iter().map(row).collect::<Vec<_>>());
    let mut text = String::new();
    for (line, check) in lines.lines().zip(checks) {
        text.push_str(line);
        text.push('\n');
        if !check.remedy.is_empty() {
            text.push_str(&format!("         -> {}\n", check.remedy));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn each_check_has_its_line_and_each_trouble_its_remedy() {
        let checks = [
            Check::ok("memory", "1.0 GiB of 8.0 GiB"),
            Check::failed("disk data", "3 inodes are left", "make room"),
            Check::warning("clock", "70 s off", "run chrony"),
        ];
        let expected = "ok          memory  1.0 GiB of 8.0 GiB\n\
                        FAILED   disk data  3 inodes are left\n         -> make room\n\
                        warning      clock  70 s off\n         -> run chrony\n";
        assert_eq!(printed(&checks), expected);
        let value = json!(checks);
        assert_eq!((&value[0]["state"], &value[1]["remedy"]), (&json!("ok"), &json!("make room")));
        assert_eq!(value[0].get("remedy"), None::<&Value>);
    }
}
