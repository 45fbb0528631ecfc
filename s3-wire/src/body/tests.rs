use super::*;
use crate::{
    checksum::{Checksum, ChecksumAlgorithm},
    error::{ErrorCode, Result},
    sigv4::{ChunkSigner, PayloadMode, Scope, SecretKey, SigningKey, SigningService},
};
use bytes::Bytes;
use crypto::{Digest, Sha256};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use proptest::prelude::*;
use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// A body of given frames.
struct Frames(VecDeque<Bytes>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(data))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

/// Decodes a body that comes in the given frames.
fn decode(frames: Vec<Bytes>, framing: &Framing) -> Result<(Vec<u8>, Trailers)> {
    let mut body = DecodedBody::new(Frames(frames.into()), framing.clone());
    let mut payload = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let next = std::pin::pin!(body.next()).poll_now(&mut context);
        match next {
            Some(Ok(piece)) => {
                assert!(!piece.is_empty());
                payload.extend_from_slice(&piece);
            }
            Some(Err(error)) => {
                assert!(error.close_connection(), "a framing error closes the connection");
                assert!(std::pin::pin!(body.next()).poll_now(&mut context).is_none(), "an error is the last item");
                assert!(body.trailers().is_none());
                return Err(error);
            }
            None => return Ok((payload, body.trailers().expect("the stream ended well").clone())),
        }
    }
}

trait PollNow: Future + Sized {
    fn poll_now(self: Pin<&mut Self>, context: &mut Context<'_>) -> Self::Output {
        match self.poll(context) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the frames are all there"),
        }
    }
}

impl<F: Future> PollNow for F {}

/// Frames of `size` bytes.
fn split(wire: &[u8], size: usize) -> Vec<Bytes> {
    wire.chunks(size.max(1)).map(Bytes::copy_from_slice).collect()
}

fn code(result: Result<(Vec<u8>, Trailers)>) -> Option<ErrorCode> {
    result.err().map(|error| error.code())
}

/// The signer of AWS's documented streaming examples.
fn signer(seed: &str) -> ChunkSigner {
    let scope = Scope { date: "20130524".into(), region: "us-east-1".into(), service: SigningService::S3 };
    let key = SigningKey::derive(&SecretKey::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), &scope);
    ChunkSigner::new(key, "20130524T000000Z".into(), scope, seed.into())
}

fn framing(payload: PayloadMode, decoded_len: usize, trailer: Option<ChecksumAlgorithm>) -> Framing {
    Framing { payload, decoded_len: decoded_len as u64, wire_len: None, trailer }
}

fn signed(decoded_len: usize) -> Framing {
    framing(PayloadMode::StreamingSigned { signer: signer("seed"), trailer: false }, decoded_len, None)
}

fn signed_trailer(decoded_len: usize) -> Framing {
    let payload = PayloadMode::StreamingSigned { signer: signer("seed"), trailer: true };
    framing(payload, decoded_len, Some(ChecksumAlgorithm::Crc32))
}

fn unsigned_trailer(decoded_len: usize) -> Framing {
    framing(PayloadMode::StreamingUnsignedTrailer, decoded_len, Some(ChecksumAlgorithm::Crc32))
}

/// Frames chunks as a client does.
struct Client {
    signer: Option<ChunkSigner>,
    wire: Vec<u8>,
}

impl Client {
    fn signing() -> Self {
        Self { signer: Some(signer("seed")), wire: Vec::new() }
    }

    fn not_signing() -> Self {
        Self { signer: None, wire: Vec::new() }
    }

    fn line(&mut self, line: &str) {
        self.wire.extend_from_slice(line.as_bytes());
        self.wire.extend_from_slice(b"\r\n");
    }

    fn chunk(mut self, data: &[u8]) -> Self {
        let signature = self.signer.as_mut().map(|signer| {
            let sha256 = Sha256::digest(data).into();
            let signature = signer.chunk_signature(sha256);
            assert!(signer.verify_chunk(sha256, &signature));
            format!(";chunk-signature={signature}")
        });
        self.line(&format!("{:x}{}", data.len(), signature.unwrap_or_default()));
        if !data.is_empty() {
            self.wire.extend_from_slice(data);
            self.line("");
        }
        self
    }

    fn trailer(mut self, lines: &[(&str, &str)]) -> Self {
        for (name, value) in lines {
            self.line(&format!("{name}:{value}"));
        }
        if let Some(signer) = &self.signer {
            let canonical: String = lines.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
            let signature = signer.trailer_signature(Sha256::digest(canonical).into());
            self.line(&format!("x-amz-trailer-signature:{signature}"));
        }
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.line("");
        self.wire
    }
}

const CRC: [(&str, &str); 1] = [("x-amz-checksum-crc32", "AAAAAA==")];

#[test]
fn the_chunks_of_awss_documentation_verify() {
    // "Transferring payload in multiple chunks": 65536 and 1024 times `a`.
    let chunks = [
        (65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
        (1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
        (0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
    ];
    let mut wire = Vec::new();
    for (size, signature) in chunks {
        wire.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        wire.extend(std::iter::repeat_n(b'a', size));
        wire.extend_from_slice(b"\r\n");
    }
    assert_eq!(wire.len(), 66824);
    let seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
    let payload = PayloadMode::StreamingSigned { signer: signer(seed), trailer: false };
    let framing = Framing { payload, decoded_len: 66560, wire_len: Some(66824), trailer: None };
    for size in [1, 7, 88, 4096, wire.len()] {
        assert_eq!(decode(split(&wire, size), &framing).unwrap().0, vec![b'a'; 66560], "frames of {size}");
    }
}

#[test]
fn the_trailer_of_awss_documentation_verifies() {
    let chunks = [
        (65536, "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"),
        (1024, "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"),
        (0, "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"),
    ];
    let mut wire = Vec::new();
    for (size, signature) in chunks {
        wire.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        wire.extend(std::iter::repeat_n(b'a', size));
        if size > 0 {
            wire.extend_from_slice(b"\r\n");
        }
    }
    // The documentation writes a line feed before the line break of the checksum, and so do clients
    // made from it.
    for checksum in ["x-amz-checksum-crc32c:sOO8/Q==\r\n", "x-amz-checksum-crc32c:sOO8/Q==\n\r\n"] {
        let signature =
            "x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n";
        let wire = [&wire, checksum.as_bytes(), signature.as_bytes()].concat();
        let seed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
        let payload = PayloadMode::StreamingSigned { signer: signer(seed), trailer: true };
        let framing = framing(payload, 66560, Some(ChecksumAlgorithm::Crc32c));
        let (body, trailers) = decode(split(&wire, 1000), &framing).unwrap();
        assert_eq!(body.len(), 66560);
        assert_eq!(trailers.checksum, Some(Checksum::parse(ChecksumAlgorithm::Crc32c, "sOO8/Q==").unwrap()));
    }
}

#[test]
fn a_body_cut_anywhere_is_an_error_not_an_end() {
    // C10, E24
    let bodies = [
        (Client::signing().chunk(b"hello").chunk(b"world!").chunk(b"").end(), signed(11)),
        (Client::signing().chunk(b"hello").chunk(b"").trailer(&CRC).end(), signed_trailer(5)),
        (Client::not_signing().chunk(b"hello").chunk(b"").trailer(&CRC).end(), unsigned_trailer(5)),
        (b"hello".to_vec(), framing(PayloadMode::Unsigned, 5, None)),
    ];
    for (wire, framing) in bodies {
        assert!(decode(split(&wire, wire.len()), &framing).is_ok());
        for len in 0..wire.len() {
            let cut = decode(split(&wire[..len], 3), &framing);
            assert_eq!(code(cut), Some(ErrorCode::IncompleteBody), "cut at {len}");
        }
    }
}

#[test]
fn bytes_after_the_end_are_an_error() {
    for (mut wire, framing, expected) in [
        (Client::signing().chunk(b"hello").chunk(b"").end(), signed(5), ErrorCode::MalformedTrailerError),
        (Client::not_signing().chunk(b"").trailer(&CRC).end(), unsigned_trailer(0), ErrorCode::MalformedTrailerError),
        (b"hello".to_vec(), framing(PayloadMode::Unsigned, 5, None), ErrorCode::IncompleteBody),
    ] {
        wire.push(b'x');
        for size in [1, wire.len()] {
            assert_eq!(code(decode(split(&wire, size), &framing)), Some(expected));
        }
    }
}

#[test]
fn a_frame_split_at_every_byte_gives_the_same_payload() {
    let wire = Client::signing().chunk(b"hello").chunk(b"wor\r\nld").chunk(b"").trailer(&CRC).end();
    for at in 0..=wire.len() {
        let frames = vec![Bytes::copy_from_slice(&wire[..at]), Bytes::new(), Bytes::copy_from_slice(&wire[at..])];
        let (payload, trailers) = decode(frames, &signed_trailer(12)).unwrap();
        assert_eq!(payload, b"hellowor\r\nld", "split at {at}");
        assert!(trailers.checksum.is_some());
    }
}

#[test]
fn any_changed_byte_of_a_signed_body_is_an_error() {
    // C9
    let wire = Client::signing().chunk(b"hello").chunk(b"world!").chunk(b"").trailer(&CRC).end();
    for at in 0..wire.len() {
        for flip in [0x01, 0x20, 0x80] {
            let mut changed = wire.clone();
            changed[at] ^= flip;
            let result = decode(split(&changed, 5), &signed_trailer(11));
            // A hex digit of a size or the name of the trailer in another case says the same.
            if let Ok((payload, _)) = result {
                assert_eq!(payload, b"helloworld!");
                assert!(
                    changed[at].eq_ignore_ascii_case(&wire[at]),
                    "byte {at} of {:?}",
                    String::from_utf8_lossy(&changed)
                );
            }
        }
    }
}

#[test]
fn chunks_dropped_repeated_or_reordered_are_an_error() {
    // C9
    let chunk = |previous: &[&[u8]], data: &[u8]| {
        let before = previous.iter().fold(Client::signing(), |client, data| client.chunk(data));
        let len = before.wire.len();
        before.chunk(data).wire.split_off(len)
    };
    let (first, second, last) = (chunk(&[], b"one"), chunk(&[b"one"], b"two"), chunk(&[b"one", b"two"], b""));
    let body = |chunks: &[&[u8]]| [chunks.concat(), b"\r\n".to_vec()].concat();
    assert!(decode(split(&body(&[&first, &second, &last]), 9), &signed(6)).is_ok());
    for (chunks, len) in [
        (vec![&second[..], &first, &last], 6),
        (vec![&first, &first, &last], 6),
        (vec![&first, &second, &second, &last], 9),
        (vec![&second, &last], 3),
        (vec![&first, &last], 3),
    ] {
        let wire = body(&chunks);
        assert_eq!(code(decode(split(&wire, 9), &signed(len))), Some(ErrorCode::SignatureDoesNotMatch));
    }
}

#[test]
fn a_chunk_that_claims_more_than_is_announced_is_refused_at_its_header() {
    // C8: no need to wait for bytes that never come.
    for header in ["7fffffffffffffff", "ffffffffffffffff", "6"] {
        let wire = format!("{header};chunk-signature={}\r\n", "0".repeat(64));
        assert_eq!(code(decode(split(wire.as_bytes(), 10), &signed(5))), Some(ErrorCode::IncompleteBody), "{header}");
        let wire = format!("{header}\r\nhello\r\n");
        assert_eq!(
            code(decode(split(wire.as_bytes(), 10), &unsigned_trailer(5))),
            Some(ErrorCode::IncompleteBody),
            "{header}"
        );
    }
}

#[test]
fn malformed_chunks_are_refused() {
    let long = "0".repeat(600);
    let zeros = "0".repeat(17);
    for (wire, expected) in [
        ("5\r\nhelloX\r\n0\r\n", ErrorCode::IncompleteBody),
        ("5\r\nhell\r\n0\r\n\r\n", ErrorCode::IncompleteBody),
        ("4\r\nhello\r\n", ErrorCode::IncompleteBody),
        ("\r\n", ErrorCode::IncompleteBody),
        ("-5\r\n", ErrorCode::IncompleteBody),
        ("+5\r\n", ErrorCode::IncompleteBody),
        ("0x5\r\n", ErrorCode::IncompleteBody),
        (" 5\r\n", ErrorCode::IncompleteBody),
        ("5 \r\n", ErrorCode::IncompleteBody),
        ("g\r\n", ErrorCode::IncompleteBody),
        ("5;x=y\r\nhello\r\n", ErrorCode::IncompleteBody),
        (&long, ErrorCode::IncompleteBody),
        (&zeros, ErrorCode::IncompleteBody),
        ("5\nhello\n0\n\n", ErrorCode::IncompleteBody),
        ("0\r\n\r\n", ErrorCode::IncompleteBody),
        ("3\r\nhel\r\n0\r\n\r\n", ErrorCode::IncompleteBody),
    ] {
        for size in [1, wire.len()] {
            let result = decode(split(wire.as_bytes(), size), &unsigned_trailer(5));
            assert_eq!(code(result), Some(expected), "{wire:?} in frames of {size}");
        }
    }
    let unsigned_chunk = b"5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(code(decode(split(unsigned_chunk, 4), &signed(5))), Some(ErrorCode::SignatureDoesNotMatch));
}

#[test]
fn a_trailer_that_is_not_the_announced_one_is_refused() {
    // C10
    let other = [("x-amz-checksum-sha1", "AAAA")];
    let two = [CRC[0], ("x-amz-meta-a", "b")];
    let (short, empty) = ([("x-amz-checksum-crc32", "AAAA")], [("x-amz-checksum-crc32", "")]);
    for (lines, expected) in [
        (&[][..], ErrorCode::MalformedTrailerError),
        (&other, ErrorCode::MalformedTrailerError),
        (&two, ErrorCode::MalformedTrailerError),
        (&[CRC[0], CRC[0]], ErrorCode::MalformedTrailerError),
        (&short, ErrorCode::InvalidRequest),
        (&empty, ErrorCode::InvalidRequest),
    ] {
        let unsigned = Client::not_signing().chunk(b"").trailer(lines).end();
        assert_eq!(code(decode(split(&unsigned, 5), &unsigned_trailer(0))), Some(expected), "{lines:?}");
        let signed = Client::signing().chunk(b"").trailer(lines).end();
        assert_eq!(code(decode(split(&signed, 5), &signed_trailer(0))), Some(expected), "{lines:?}");
    }
    let mut unsigned_lines = Client::signing().chunk(b"");
    unsigned_lines.line("x-amz-checksum-crc32:AAAAAA==");
    assert_eq!(
        code(decode(split(&unsigned_lines.end(), 5), &signed_trailer(0))),
        Some(ErrorCode::SignatureDoesNotMatch)
    );
    let none_announced = Client::signing().chunk(b"").trailer(&CRC).end();
    assert_eq!(code(decode(split(&none_announced, 5), &signed(0))), Some(ErrorCode::MalformedTrailerError));
    let many: Vec<_> = std::iter::repeat_n(("a", "b"), 1000).collect();
    let many = Client::not_signing().chunk(b"").trailer(&many).end();
    assert_eq!(code(decode(split(&many, 500), &unsigned_trailer(0))), Some(ErrorCode::MalformedTrailerError));
}

#[test]
fn payload_is_handed_on_without_copies_before_a_chunk_is_complete() {
    let header = Bytes::from_static(b"140000000\r\n"); // A chunk of 5 GiB.
    let data = Bytes::from(vec![7; 1 << 16]);
    let mut framing = unsigned_trailer(0);
    framing.decoded_len = 5 << 30;
    let mut body = DecodedBody::new(Frames(vec![header, data.clone()].into()), framing);
    let mut context = Context::from_waker(Waker::noop());
    let piece = std::pin::pin!(body.next()).poll_now(&mut context).unwrap().unwrap();
    assert_eq!((piece.as_ptr(), piece.len()), (data.as_ptr(), data.len()));
    let cut = std::pin::pin!(body.next()).poll_now(&mut context).unwrap().unwrap_err();
    assert_eq!(cut.code(), ErrorCode::IncompleteBody);
}

#[test]
fn content_length_must_be_what_came() {
    let wire = Client::not_signing().chunk(b"hello").chunk(b"").trailer(&CRC).end();
    for (len, expected) in [
        (wire.len(), None),
        (wire.len() + 1, Some(ErrorCode::IncompleteBody)),
        (wire.len() - 1, Some(ErrorCode::IncompleteBody)),
    ] {
        let framing = Framing { wire_len: Some(len as u64), ..unsigned_trailer(5) };
        assert_eq!(code(decode(split(&wire, 8), &framing)), expected, "{len}");
    }
}

#[test]
fn a_document_past_its_bound_is_refused_before_it_is_read() {
    let collect = |bytes_max| {
        let frames = split(b"document", 3);
        let mut body = DecodedBody::new(Frames(frames.into()), framing(PayloadMode::Unsigned, 8, None));
        std::pin::pin!(body.collect(bytes_max)).poll_now(&mut Context::from_waker(Waker::noop()))
    };
    assert_eq!(collect(8).unwrap(), "document");
    assert_eq!(collect(7).unwrap_err().code(), ErrorCode::MaxMessageLengthExceeded);
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers
}

#[test]
fn lengths_are_decimal_and_agree() {
    // C11, C17, C64
    let (content, decoded, announce) = ("content-length", "x-amz-decoded-content-length", "x-amz-trailer");
    let plain = PayloadMode::Unsigned;
    let chunked = PayloadMode::StreamingUnsignedTrailer;
    let read = |mode: &PayloadMode, pairs: &[(&'static str, &'static str)]| {
        Framing::from_headers(&headers(pairs), mode).map(|framing| framing.decoded_len).map_err(|error| {
            assert!(error.close_connection());
            error.code()
        })
    };
    assert_eq!(read(&plain, &[(content, "0")]), Ok(0));
    assert_eq!(read(&plain, &[(content, "5"), (decoded, "3")]), Ok(5));
    assert_eq!(read(&chunked, &[(content, "50"), (decoded, "5")]), Ok(5));
    assert_eq!(read(&chunked, &[(decoded, "18446744073709551615")]), Ok(u64::MAX));
    assert_eq!(read(&chunked, &[(decoded, "5"), (announce, "x-amz-checksum-crc64nvme")]), Ok(5));
    for (mode, pairs, expected) in [
        (&plain, &[][..], ErrorCode::MissingContentLength),
        (&chunked, &[(content, "5")], ErrorCode::MissingContentLength),
        (&plain, &[(content, "5"), (content, "5")], ErrorCode::InvalidArgument),
        (&plain, &[(content, "+5")], ErrorCode::InvalidArgument),
        (&plain, &[(content, "5, 5")], ErrorCode::InvalidArgument),
        (&chunked, &[(decoded, "-1")], ErrorCode::MissingContentLength),
        (&chunked, &[(decoded, "18446744073709551616")], ErrorCode::MissingContentLength),
        (&chunked, &[(decoded, "")], ErrorCode::MissingContentLength),
        (&chunked, &[(decoded, "5"), (decoded, "6")], ErrorCode::MissingContentLength),
        (&chunked, &[(content, "5"), (decoded, "5")], ErrorCode::IncompleteBody),
        (&chunked, &[(content, "5"), (decoded, "6")], ErrorCode::IncompleteBody),
        (&chunked, &[(decoded, "5"), (announce, "x-amz-meta-a")], ErrorCode::InvalidRequest),
        (
            &chunked,
            &[(decoded, "5"), (announce, "x-amz-checksum-crc32,x-amz-checksum-sha1")],
            ErrorCode::InvalidRequest,
        ),
        (&plain, &[(content, "5"), (announce, "x-amz-checksum-crc32")], ErrorCode::InvalidRequest),
    ] {
        assert_eq!(read(mode, pairs), Err(expected), "{pairs:?}");
    }
    let empty = Framing::of_document(&HeaderMap::new(), &plain, true).unwrap();
    assert_eq!(empty.decoded_len, 0);
    assert!(Framing::of_document(&HeaderMap::new(), &plain, false).is_err());
}

proptest! {
    #[test]
    fn any_chunks_in_any_frames_give_the_payload(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..200), 0..6),
        size in 1usize..300,
        signs: bool,
    ) {
        let client = if signs { Client::signing() } else { Client::not_signing() };
        let wire = chunks.iter().fold(client, |client, chunk| client.chunk(chunk)).chunk(b"").trailer(&CRC).end();
        let payload = chunks.concat();
        let framing = if signs { signed_trailer(payload.len()) } else { unsigned_trailer(payload.len()) };
        prop_assert_eq!(decode(split(&wire, size), &framing).unwrap().0, payload);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_never_give_more_than_announced(
        pieces in proptest::collection::vec("[0-9a-f]{1,3}\r\n|;chunk-signature=[0-9a-f]{64}\r\n|\r\n|[a-z]{1,9}|x-amz-checksum-crc32:AAAAAA==\r\n|0\r\n", 0..12),
        size in 1usize..20,
        len in 0usize..40,
    ) {
        let wire = pieces.concat();
        for framing in [signed(len), signed_trailer(len), unsigned_trailer(len)] {
            if let Ok((payload, _)) = decode(split(wire.as_bytes(), size), &framing) {
                prop_assert_eq!(payload.len(), len);
            }
        }
    }
}
