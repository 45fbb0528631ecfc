//! A real S3 server for the tests: versitygw on a temporary directory and a free port of the
//! loopback interface.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use storage_backends::{S3Config, S3Credentials};

pub(crate) const ACCESS_KEY_ID: &str = "test-access-key";
pub(crate) const SECRET_ACCESS_KEY: &str = "test-secret-key";
pub(crate) const BUCKET: &str = "blobs";

/// A running server; it ends with the value.
pub(crate) struct Gateway {
    server: Child,
    port: u16,
    root: tempfile::TempDir,
}

impl Gateway {
    /// Starts a server that has one empty bucket.
    pub(crate) async fn start() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        for dir in ["data", "data/blobs", "iam"] {
            std::fs::create_dir(root.path().join(dir)).expect("a directory");
        }
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port").local_addr().expect("bound").port();
        let server = Command::new(binary())
            .args(["--port", &format!("127.0.0.1:{port}"), "--quiet", "--keep-alive"])
            .args(["--iam-dir".as_ref(), root.path().join("iam").as_os_str()])
            .arg("posix")
            .arg(root.path().join("data"))
            .env("ROOT_ACCESS_KEY", ACCESS_KEY_ID)
            .env("ROOT_SECRET_KEY", SECRET_ACCESS_KEY)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("versitygw starts");
        let mut gateway = Self { server, port, root };
        gateway.wait_until_it_listens().await;
        gateway
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The server's directory that holds the bucket's objects.
    pub(crate) fn bucket_dir(&self) -> PathBuf {
        self.root.path().join("data").join(BUCKET)
    }

    pub(crate) fn config(&self) -> S3Config {
        let credentials = S3Credentials::Static {
            access_key_id: ACCESS_KEY_ID.to_owned(),
            secret_access_key: SECRET_ACCESS_KEY.into(),
            session_token: None,
        };
        S3Config { endpoint: Some(self.endpoint()), prefix: "prod/".to_owned(), ..S3Config::new(BUCKET, credentials) }
    }

    async fn wait_until_it_listens(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.is_err() {
            if let Some(status) = self.server.try_wait().expect("its state is known") {
                panic!("versitygw ended at once: {status}");
            }
            assert!(Instant::now() < deadline, "versitygw does not listen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended on its own; then there is nothing to end.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The server's binary, from `DELTAWEIR_TEST_VERSITYGW` or from where the repository's setup puts
/// it.
fn binary() -> PathBuf {
    let from_setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/bin/versitygw");
    let binary = std::env::var_os("DELTAWEIR_TEST_VERSITYGW").map_or(from_setup, PathBuf::from);
    assert!(
        binary.is_file(),
        "no S3 server to test against: {} is missing; run tests/setup.sh, or name a versitygw in DELTAWEIR_TEST_VERSITYGW",
        binary.display()
    );
    binary
}
