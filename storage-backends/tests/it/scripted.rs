//! A store that answers exactly what a test wants: for what a real server cannot be made to say.

use std::sync::{Arc, Mutex};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A server on the loopback interface; it ends with the value.
pub(crate) struct Scripted {
    pub(crate) endpoint: String,
    heads: Arc<Mutex<Vec<String>>>,
    server: JoinHandle<()>,
}

/// One answer.
pub(crate) enum Answer {
    /// These bytes, then the connection is closed.
    Bytes(Vec<u8>),
    /// Nothing, for ever.
    Silence,
}

/// A whole answer.
pub(crate) fn answer(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Answer {
    let body = body.as_ref();
    let mut text = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    Answer::Bytes([text.as_bytes(), body].concat())
}

/// The way stores write errors.
pub(crate) fn error(status: &str, code: &str) -> Answer {
    answer(status, &[], format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>scripted</Message></Error>"))
}

impl Scripted {
    /// Answers every request with what `script` makes of its head.
    pub(crate) async fn start(script: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (script, seen) = (Arc::new(script), heads.clone());
        let server = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, script.clone(), seen.clone()));
            }
        });
        Self { endpoint, heads, server }
    }

    /// The heads of all requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("not poisoned").clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(
    mut connection: TcpStream,
    script: Arc<impl Fn(&str) -> Answer + Send + Sync + 'static>,
    heads: Arc<Mutex<Vec<String>>>,
) {
    let mut request = Vec::new();
    let head_len = loop {
        if let Some(at) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if connection.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    };
    let head = String::from_utf8_lossy(&request[..head_len]).to_ascii_lowercase();
    let body_len: usize = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .map_or(0, |len| len.trim().parse().expect("a length"));
    while request.len() < head_len + body_len {
        if connection.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    heads.lock().expect("not poisoned").push(head.clone());
    match script(&head) {
        Answer::Bytes(bytes) => {
            // A client that has seen enough may be gone.
            let _ = connection.write_all(&bytes).await;
            let _ = connection.shutdown().await;
        }
        Answer::Silence => std::future::pending().await,
    }
}
