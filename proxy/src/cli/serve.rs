//! `deltaweir serve`: from a configuration to a running server, and to its end.

use super::{Failure, Outcome, out};
use crate::{
    admin::AdminService,
    auth::{Credentials, Users, root},
    config::{LogConfig, LogFormat, ServeConfig},
    engine::Engine,
    metrics::Metrics,
    server::{S3Service, Server},
};
use std::{io::IsTerminal as _, net::SocketAddr};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing_subscriber::EnvFilter;

/// Runs until SIGTERM or SIGINT, then lets requests end.
pub(super) async fn serve(config: ServeConfig) -> Outcome {
    start_log(&config.log)?;
    config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let stop = stop_signal()?;
    let metrics = Metrics::new()?;
    let mut server = Server::bind(config.server.clone()).await?;
    let data = config.engine.data.clone();
    let engine = Engine::open(config.engine, metrics.clone()).await?;
    server.bind_socket(&data)?;

    let (root, printed_once) = match config.root {
        Some(root) => (Some(root), None),
        None if config.users.is_empty() => {
            let pair = root::load_or_create(&data)?;
            (Some(pair.credentials), pair.printed_once)
        }
        None => (None, None),
    };
    let address = server.s3_address()?;
    let scheme = if server.is_tls() { "https" } else { "http" };
    if let (Some(root), Some(secret)) = (&root, &printed_once) {
        out(&first_steps(root, secret, &config.server.region, &format!("{scheme}://{address}")))?;
    }
    out(&format!("S3 on {scheme}://{address}, admin on http://{}", server.admin_address()?))?;
    tracing::info!(version = crate::metrics::VERSION, commit = crate::metrics::COMMIT, "serving");
    warn_about_reach(address, server.is_tls());

    let users = Users::new(root, config.users);
    let s3 = S3Service::new(&config.server, engine.clone(), metrics.clone(), users);
    let admin = AdminService::new(engine.clone(), metrics, config.server.admin_token.clone(), stop.clone());
    let in_time = server.run(s3, admin, stop).await;
    engine.shutdown().await;
    tracing::info!(in_time, "stopped");
    Ok(())
}

/// What a newcomer pastes. Printed once: the secret is in the data directory afterwards.
fn first_steps(root: &Credentials, secret: &str, region: &str, endpoint: &str) -> String {
    let id = &root.access_key_id;
    format!(
        "\nA root key pair was made for this store. It is printed this once and kept in {}.\n\n\
         export AWS_ACCESS_KEY_ID={id}\n\
         export AWS_SECRET_ACCESS_KEY={secret}\n\
         export AWS_DEFAULT_REGION={region}\n\n\
         aws --endpoint-url {endpoint} s3 mb s3://releases\n\
         aws --endpoint-url {endpoint} s3 cp ./app-1.0.tar s3://releases/\n\
         aws --endpoint-url {endpoint} s3 ls s3://releases/\n",
        root::FILE_NAME
    )
}

fn warn_about_reach(address: SocketAddr, tls: bool) {
    if !address.ip().is_loopback() && !tls {
        tracing::warn!(%address, "the S3 listener is plain HTTP: others on the way can read what is sent");
    }
}

/// Log lines go to stderr, so that what commands print stays apart.
fn start_log(log: &LogConfig) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&log.filter).map_err(|error| Failure(format!("log.filter: {error}")))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match log.format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}

/// True once SIGTERM or SIGINT came; a second one ends the process at once.
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
    fn what_is_printed_can_be_pasted() {
        let root = Credentials { access_key_id: "DWKEY".into(), secret: SecretKey::new("word") };
        let text = first_steps(&root, "word", "us-east-1", "http://127.0.0.1:9000");
        assert!(text.contains("\nexport AWS_ACCESS_KEY_ID=DWKEY\nexport AWS_SECRET_ACCESS_KEY=word\n"));
        assert!(text.contains("\naws --endpoint-url http://127.0.0.1:9000 s3 cp "));
    }
}
