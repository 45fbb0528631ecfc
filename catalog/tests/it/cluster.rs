//! A private PostgreSQL for tests: Debian's, in a directory of its own, on loopback, gone with the
//! test process however that ends.

use std::{
    io::{Read, Seek, Write},
    net::TcpListener,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// Ends the server and removes its directory when standard input ends, which is when the test
/// process does.
const SUPERVISOR: &str = r#"
directory=$1; shift
"$@" &
read _
server=$(head -n 1 "$directory/data/postmaster.pid")
kill -INT "$server"
while kill -0 "$server"; do sleep 0.02; done
rm -rf "$directory"
"#;

pub(crate) struct Cluster {
    directory: PathBuf,
    binaries: PathBuf,
    port: u16,
    supervisor: Child,
}

static STARTED: AtomicU32 = AtomicU32::new(0);

impl Cluster {
    /// Whether there is a server to start.
    #[allow(dead_code, reason = "the tests need one; the benches can do without")]
    pub(crate) fn is_installed() -> bool {
        newest_binaries().is_some()
    }

    /// Makes a cluster and starts it. Flushing is off: nothing here crashes the machine.
    pub(crate) fn start() -> Cluster {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("catalog-postgres-{}-{number}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        if is_root() {
            run(Command::new("chown").arg("postgres:").arg(&directory));
        }
        let binaries = binaries();
        let data = directory.join("data");
        // A collation that is not the order of bytes, to see that nothing depends on it.
        run(as_server(&binaries.join("initdb")).arg("-D").arg(&data).args([
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--locale-provider=icu",
            "--icu-locale=en-US",
            "--no-sync",
        ]));
        certificates(&directory);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = std::fs::File::create(directory.join("log")).unwrap();
        if is_root() {
            run(Command::new("chown").arg("postgres:").arg(directory.join("log")));
        }
        let server = as_server(&binaries.join("postgres"));
        let supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "sh"])
            .arg(&directory)
            .arg(server.get_program())
            .args(server.get_args())
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&directory)
            .arg("-p")
            .arg(port.to_string())
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=500"])
            .args(["-c", "ssl=on", "-c"])
            .arg(format!("ssl_cert_file={}", directory.join("server.pem").display()))
            .arg("-c")
            .arg(format!("ssl_key_file={}", directory.join("server.key").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let cluster = Cluster { directory, binaries, port, supervisor };
        cluster.wait_until_ready();
        cluster
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The certificate that signed the server's, which is for `localhost` only.
    pub(crate) fn roots(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// An address of this cluster, with everything in `schema`, by way of `port`.
    pub(crate) fn url_by(&self, port: u16, schema: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres?options=-csearch_path%3D{schema}")
    }

    pub(crate) fn url(&self, schema: &str) -> String {
        self.url_by(self.port, schema)
    }

    /// A plain connection, its tables in `schema`.
    pub(crate) async fn client(&self, schema: &str) -> tokio_postgres::Client {
        let (client, connection) =
            tokio_postgres::connect(&format!("{}&sslmode=disable", self.url(schema)), tokio_postgres::NoTls)
                .await
                .unwrap();
        tokio::spawn(connection);
        client
    }

    /// Makes an empty schema; its name.
    pub(crate) async fn schema(&self) -> String {
        let name = format!("t{}", STARTED.fetch_add(1, Ordering::Relaxed));
        self.client("public").await.batch_execute(&format!("CREATE SCHEMA {name}")).await.unwrap();
        name
    }

    /// Kills every process of the server at once, without a checkpoint.
    pub(crate) fn crash(&self) {
        let data = self.directory.join("data");
        run(as_server(&self.binaries.join("pg_ctl")).args(["stop", "-m", "immediate", "-D"]).arg(data));
    }

    /// Starts the server again after [`Self::crash`].
    pub(crate) fn start_again(&self) {
        let data = self.directory.join("data");
        let options =
            format!("-k {} -p {} -c listen_addresses=127.0.0.1 -c fsync=off", self.directory.display(), self.port);
        run(as_server(&self.binaries.join("pg_ctl"))
            .args(["start", "-w", "-l"])
            .arg(self.directory.join("log"))
            .arg("-D")
            .arg(data)
            .arg("-o")
            .arg(options));
    }

    fn wait_until_ready(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        let ready = || {
            let status = Command::new(self.binaries.join("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p"])
                .arg(self.port.to_string())
                .status();
            status.unwrap().success()
        };
        while !ready() {
            let log = || std::fs::read_to_string(self.directory.join("log")).unwrap();
            assert!(Instant::now() < until, "PostgreSQL does not start: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        self.supervisor.wait().unwrap();
    }
}

/// The newest installed server that is 15 or later.
fn newest_binaries() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin"))))
        .filter(|(version, path)| *version >= 15 && path.join("postgres").exists())
        .max();
    Some(newest?.1)
}

fn binaries() -> PathBuf {
    newest_binaries()
        .expect("PostgreSQL 15 or later must be installed (apt-get install postgresql) to use the shared catalog")
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A command of the server, which refuses to run as root.
fn as_server(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command
}

/// A certificate authority, and a certificate of its for `localhost`.
fn certificates(directory: &Path) {
    let openssl = || {
        let mut command = Command::new("openssl");
        command.current_dir(directory);
        command
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    run(openssl()
        .args(["req", "-x509", "-subj", "/CN=test authority", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem"])
        .args(key));
    run(openssl().args(["req", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"]).args(key));
    let mut extensions = std::fs::File::create(directory.join("extensions")).unwrap();
    extensions.write_all(b"subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n").unwrap();
    run(openssl()
        .args(["x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"])
        .args(["-days", "2", "-extfile", "extensions", "-out", "server.pem"]));
    run(Command::new("chmod").arg("600").arg(directory.join("server.key")));
    if is_root() {
        run(Command::new("chown").arg("postgres:").arg(directory.join("server.key")).arg(directory.join("server.pem")));
    }
}

fn run(command: &mut Command) {
    // A file, not a pipe: a server that a command leaves running would keep a pipe open.
    let mut errors = tempfile::tempfile().unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.try_clone().unwrap());
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if !status.success() {
        let mut text = String::new();
        errors.rewind().unwrap();
        errors.read_to_string(&mut text).unwrap();
        panic!("{command:?}: {status}: {text}");
    }
}
