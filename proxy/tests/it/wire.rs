//! HTTP as bytes: what a client library would tidy up is what these tests are about.

use crate::running::{ACCESS_KEY, SECRET};
use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{
        PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
        UriPathNormalizationMode, sign,
    },
    sign::v4,
};
use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// No step of a test takes longer.
const STEP: Duration = Duration::from_secs(30);

/// A connection.
pub(crate) struct Wire {
    stream: TcpStream,
    address: SocketAddr,
    received: Vec<u8>,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The S3 error code of the body.
    pub(crate) fn code(&self) -> Option<String> {
        let body = String::from_utf8_lossy(&self.body).into_owned();
        let (_, rest) = body.split_once("<Code>")?;
        Some(rest.split_once("</Code>")?.0.to_owned())
    }

    /// The length its head announces.
    fn length(&self) -> Option<usize> {
        self.header("content-length").map(|length| length.parse().unwrap())
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn closes(&self) -> bool {
        self.head.to_ascii_lowercase().contains("connection: close")
    }
}

impl Wire {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = timeout(STEP, TcpStream::connect(address)).await.unwrap().unwrap();
        Self { stream, address, received: Vec::new() }
    }

    /// From one of the other loopback addresses: 127.0.0.`last`.
    pub(crate) async fn from(last: u8, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        let stream = timeout(STEP, socket.connect(address)).await.unwrap().unwrap();
        Self { stream, address, received: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        timeout(STEP, self.stream.write_all(bytes.as_ref())).await.unwrap().unwrap();
    }

    /// Ends our side of the connection.
    pub(crate) async fn end_sending(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// The head of a signed request; `headers` are signed too.
    pub(crate) fn signed(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> String {
        let host = self.address.to_string();
        let mut signable = vec![("host", host.as_str())];
        signable.extend_from_slice(headers);
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        let identity = Credentials::new(ACCESS_KEY, SECRET, None, None, "test").into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region("us-east-1")
            .name("s3")
            .time(SystemTime::now())
            .settings(settings)
            .build()
            .unwrap()
            .into();
        let url = format!("http://{host}{target}");
        let signable = SignableRequest::new(method, url, signable.into_iter(), SignableBody::UnsignedPayload).unwrap();
        let (instructions, _) = sign(signable, &params).unwrap().into_parts();
        let mut head = format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\n");
        let added = instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (name, value) in headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).chain(added) {
            head += &format!("{name}: {value}\r\n");
        }
        head + "\r\n"
    }

    /// A request nobody signed.
    pub(crate) fn unsigned(&self, method: &str, target: &str, headers: &str) -> String {
        format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.address)
    }

    /// Sends a signed request with a body and reads its answer.
    pub(crate) async fn call(&mut self, method: &str, target: &str, body: &[u8]) -> Reply {
        let length = body.len().to_string();
        let head = self.signed(method, target, &[("content-length", length.as_str())]);
        self.send(head).await;
        self.send(body).await;
        self.reply(method == "HEAD").await.unwrap()
    }

    /// The same, with headers more, over a connection that may end at any time: `None` unless the
    /// whole answer came.
    pub(crate) async fn attempt(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Reply> {
        let length = body.len().to_string();
        let headers = [headers, &[("content-length", length.as_str())]].concat();
        let request = [self.signed(method, target, &headers).as_bytes(), body].concat();
        // A server that refuses a body may answer and close before it was sent.
        let _ = timeout(STEP, self.stream.write_all(&request)).await.expect("the server reads or closes");
        let reply = self.reply(method == "HEAD").await?;
        let is_whole = method == "HEAD" || reply.length().is_none_or(|length| length == reply.body.len());
        is_whole.then_some(reply)
    }

    /// The next answer; `None` when the connection ends first.
    pub(crate) async fn reply(&mut self, is_head: bool) -> Option<Reply> {
        let head_len = loop {
            if let Some(at) = self.received.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.more().await {
                return None;
            }
        };
        let head = String::from_utf8(self.received.drain(..head_len).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: Vec::new() };
        let wanted = if is_head || status == 100 { 0 } else { reply.length().unwrap_or(0) };
        while self.received.len() < wanted && self.more().await {}
        reply.body = self.received.drain(..wanted.min(self.received.len())).collect();
        Some(reply)
    }

    /// Whether the connection has ended and nothing more came.
    pub(crate) async fn ended(&mut self) -> bool {
        self.received.is_empty() && !self.more().await
    }

    async fn more(&mut self) -> bool {
        let mut buffer = vec![0; 64 << 10];
        match timeout(STEP, self.stream.read(&mut buffer)).await.expect("the server answers or closes") {
            Ok(len) => {
                self.received.extend_from_slice(&buffer[..len]);
                len > 0
            }
            Err(_) => false,
        }
    }
}
