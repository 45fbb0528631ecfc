//! aws-chunked: `size[;chunk-signature=…] CRLF data CRLF`…, a chunk of size 0, trailer lines, an
//! empty line.
//!
//! A pure state machine over pieces of any size: it holds one bounded line at most and hands data
//! on as slices of what came in.

use super::{Framing, Trailers};
use crate::{
    checksum::{Checksum, ChecksumAlgorithm},
    error::{ErrorCode, Result, S3Error},
    sigv4::{ChunkSigner, PayloadMode},
};
use bytes::{Buf, Bytes};
use crypto::{Digest, Sha256};

/// Longest chunk header or trailer line, with its line break. A chunk header has at most 16 + 17 +
/// 64 + 2 bytes.
const LINE_BYTES_MAX: usize = 512;
/// Trailer lines besides the signature.
const TRAILER_LINES_MAX: usize = 4;
const CHUNK_SIGNATURE: &str = "chunk-signature=";
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// Decodes one body.
pub(super) struct Chunked {
    state: State,
    line: Vec<u8>,
    signatures: Option<Signatures>,
    /// Payload bytes still to come.
    remaining: u64,
    announced: Option<ChecksumAlgorithm>,
    has_trailer: bool,
    trailer: Trailer,
}

/// The chain of signatures, and the hash of the chunk being read.
struct Signatures {
    signer: ChunkSigner,
    hasher: Sha256,
    /// What the chunk's header claims.
    claimed: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a line `size[;chunk-signature=…]`.
    Header,
    /// In the data of a chunk.
    Data { remaining: u64 },
    /// In the line break after data.
    DataEnd,
    /// In the lines after the last chunk.
    Trailer,
    /// After the empty line.
    Done,
}

#[derive(Default)]
struct Trailer {
    lines: Vec<(String, String)>,
    signature: Option<String>,
}

/// What a step gave.
pub(super) enum Step {
    /// Payload bytes.
    Data(Bytes),
    /// The input is used up.
    NeedMore,
}

impl Chunked {
    pub(super) fn new(framing: &Framing) -> Self {
        let (signatures, has_trailer) = match &framing.payload {
            PayloadMode::StreamingSigned { signer, trailer } => {
                let signer = signer.clone();
                (Some(Signatures { signer, hasher: Sha256::new(), claimed: String::new() }), *trailer)
            }
            _ => (None, true),
        };
        Self {
            state: State::Header,
            line: Vec::new(),
            signatures,
            remaining: framing.decoded_len,
            announced: framing.trailer,
            has_trailer,
            trailer: Trailer::default(),
        }
    }

    /// Whether the framing has come to its end.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes from the front of `input` until there is data to hand on or nothing is left.
    pub(super) fn step(&mut self, input: &mut Bytes) -> Result<Step> {
        while !input.is_empty() {
            match self.state {
                State::Data { remaining } => {
                    let len = input.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
                    return Ok(Step::Data(self.take_data(input.split_to(len), remaining)?));
                }
                State::Done => return Err(malformed("The body goes on after its last chunk.")),
                State::Header | State::DataEnd | State::Trailer => {
                    if let Some(line) = self.take_line(input)? {
                        self.end_line(line)?;
                    }
                }
            }
        }
        Ok(Step::NeedMore)
    }

    fn take_data(&mut self, data: Bytes, remaining: u64) -> Result<Bytes> {
        if let Some(signatures) = &mut self.signatures {
            signatures.hasher.update(&data);
        }
        let len = data.len() as u64;
        self.remaining -= len;
        self.state = State::Data { remaining: remaining - len };
        if remaining == len {
            // Before the end of the chunk is counted: a chunk whose signature never comes is no
            // chunk (C8, C9).
            self.verify_chunk()?;
            self.state = State::DataEnd;
        }
        Ok(data)
    }

    fn verify_chunk(&mut self) -> Result<()> {
        let Some(Signatures { signer, hasher, claimed }) = &mut self.signatures else { return Ok(()) };
        let sha256 = hasher.finalize_reset().into();
        if signer.verify_chunk(sha256, claimed) {
            Ok(())
        } else {
            Err(S3Error::with_message(ErrorCode::SignatureDoesNotMatch, "The signature of a chunk does not match."))
        }
    }

    /// The line that ends in `input`, without its line break; `None` when `input` ends first. Lines
    /// end with CR LF only.
    fn take_line(&mut self, input: &mut Bytes) -> Result<Option<String>> {
        while let Some(at) = input.iter().position(|b| *b == b'\n') {
            self.append(&input[..=at])?;
            input.advance(at + 1);
            if self.line.ends_with(b"\r\n") {
                let mut line = std::mem::take(&mut self.line);
                line.truncate(line.len() - 2);
                let line = String::from_utf8(line).map_err(|_| malformed("A line of the framing is not text."))?;
                return Ok(Some(line));
            }
        }
        self.append(input)?;
        input.clear();
        Ok(None)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.line.len() + bytes.len() > LINE_BYTES_MAX {
            return Err(match self.state {
                State::Trailer => malformed("A line of the trailer is too long."),
                _ => broken_framing(),
            });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, line: String) -> Result<()> {
        match self.state {
            State::DataEnd if line.is_empty() => self.state = State::Header,
            State::DataEnd => return Err(broken_framing()),
            State::Header => self.begin_chunk(&line)?,
            State::Trailer if line.is_empty() => {
                self.end_trailer()?;
                self.state = State::Done;
            }
            State::Trailer => self.trailer_line(&line)?,
            State::Data { .. } | State::Done => {}
        }
        Ok(())
    }

    fn begin_chunk(&mut self, line: &str) -> Result<()> {
        let (size, extension) = match line.split_once(';') {
            Some((size, extension)) => (size, Some(extension)),
            None => (line, None),
        };
        let hex = (1..=16).contains(&size.len()) && size.bytes().all(|b| b.is_ascii_hexdigit());
        let size = hex.then(|| u64::from_str_radix(size, 16).ok()).flatten();
        let size = size.ok_or_else(broken_framing)?;
        let signature = extension.and_then(|e| e.strip_prefix(CHUNK_SIGNATURE));
        let signature = signature.filter(|hex| hex.len() == 64 && hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match (&mut self.signatures, extension, signature) {
            (Some(signatures), _, Some(signature)) => signature.clone_into(&mut signatures.claimed),
            (None, None, _) => {}
            (Some(_), None, None) => {
                return Err(S3Error::with_message(ErrorCode::SignatureDoesNotMatch, "A chunk has no signature."));
            }
            (_, Some(_), _) => return Err(broken_framing()),
        }
        // Refused now and not when the bytes run out: they might never (C8).
        if size > self.remaining {
            return Err(incomplete(ErrorCode::IncompleteBody.message()));
        }
        if size > 0 {
            self.state = State::Data { remaining: size };
            return Ok(());
        }
        if self.remaining > 0 {
            return Err(incomplete(ErrorCode::IncompleteBody.message()));
        }
        self.verify_chunk()?;
        self.state = State::Trailer;
        Ok(())
    }

    fn trailer_line(&mut self, line: &str) -> Result<()> {
        let (name, value) = line.split_once(':').ok_or_else(|| malformed("A trailer line has no name."))?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        if self.trailer.signature.is_some() || !self.has_trailer {
            return Err(malformed("The body has a trailer its framing does not have."));
        }
        if name == TRAILER_SIGNATURE && self.signatures.is_some() {
            self.trailer.signature = Some(value);
        } else if self.trailer.lines.len() == TRAILER_LINES_MAX {
            return Err(malformed("The trailer has too many lines."));
        } else {
            self.trailer.lines.push((name, value));
        }
        Ok(())
    }

    fn end_trailer(&mut self) -> Result<()> {
        let expected: Vec<&str> = self.announced.iter().map(|algorithm| algorithm.header()).collect();
        let names: Vec<&str> = self.trailer.lines.iter().map(|(name, _)| name.as_str()).collect();
        if names != expected {
            return Err(malformed(ErrorCode::MalformedTrailerError.message())); // C10
        }
        let Some(Signatures { signer, .. }) = &mut self.signatures else { return Ok(()) };
        if !self.has_trailer {
            return Ok(());
        }
        let mut lines = Sha256::new();
        for (name, value) in &self.trailer.lines {
            lines.update(format!("{name}:{value}\n"));
        }
        let signature = self.trailer.signature.as_deref().unwrap_or_default();
        if signer.verify_trailer(lines.finalize().into(), signature) {
            Ok(())
        } else {
            Err(S3Error::with_message(ErrorCode::SignatureDoesNotMatch, "The signature of the trailer does not match."))
        }
    }

    /// The trailer, once done.
    pub(super) fn trailers(&self) -> Result<Trailers> {
        let value = |algorithm| {
            let (_, text) = self.trailer.lines.first()?;
            Checksum::parse(algorithm, text).ok().filter(|checksum| checksum.parts().is_none())
        };
        match self.announced {
            None => Ok(Trailers::default()),
            Some(algorithm) => match value(algorithm) {
                Some(checksum) => Ok(Trailers { checksum: Some(checksum) }),
                None => Err(S3Error::with_message(
                    ErrorCode::InvalidRequest,
                    format!("Value for {} trailing header is invalid.", algorithm.header()),
                )),
            },
        }
    }
}

fn malformed(message: &'static str) -> S3Error {
    S3Error::with_message(ErrorCode::MalformedTrailerError, message)
}

/// Chunks that cannot be told apart.
fn broken_framing() -> S3Error {
    incomplete("The request body terminated unexpectedly")
}

fn incomplete(message: &'static str) -> S3Error {
    S3Error::with_message(ErrorCode::IncompleteBody, message)
}
