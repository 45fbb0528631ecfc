//! Heads of HTTP/1 requests whose end or length two readers could see differently are refused
//! before the parser sees them (C17, C64). The parser takes a bare line feed for the end of a line,
//! one of two equal lengths, and chunks beside a length. A proxy in front may not, and what follows
//! would be a request for one of them and a body for the other.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How a connection of HTTP/2 begins, as far as HTTP/1 would take it for a head.
const HTTP_2: &[u8] = b"PRI * HTTP/2.0\r\n";
/// Bytes of a line that are kept: more than any field needs whose value counts here.
const LINE_BYTES_KEPT: usize = 128;
/// A byte that no line may hold, and the end of the head: the parser looks at whole heads. It
/// answers with 400 and closes the connection.
const REFUSAL: &[u8] = b"\0\r\n\r\n";

/// A connection whose bytes are looked at on their way to the parser. Bodies are counted and not
/// looked at.
pub(super) struct CheckedHeads<S> {
    inner: S,
    framing: Framing,
    /// What is still to be said in place of a refused byte and of everything after it.
    refusal: Option<&'static [u8]>,
}

impl<S> CheckedHeads<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, framing: Framing::default(), refusal: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CheckedHeads<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.refusal.is_none() {
            let before = buf.filled().len();
            let polled = Pin::new(&mut this.inner).poll_read(cx, buf);
            let Some(at) = this.framing.first_bad(&buf.filled()[before..]) else { return polled };
            buf.set_filled(before + at);
            this.refusal = Some(REFUSAL);
        }
        if let Some(left) = &mut this.refusal {
            // Once it has been said, this is the end of the connection.
            let (now, later) = left.split_at(left.len().min(buf.remaining()));
            buf.put_slice(now);
            *left = later;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CheckedHeads<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Where in the messages of a connection its next byte stands.
#[derive(Default)]
struct Framing {
    at: At,
    line: Line,
    /// Lines of this head that have ended.
    lines: usize,
    /// What this head says of its body.
    length: Option<u64>,
    chunked: bool,
    /// Whether a request was seen before.
    later: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum At {
    #[default]
    Head,
    /// So many bytes of body are to come.
    Body(u64),
    ChunkSize,
    Chunk(u64),
    /// The line break after a chunk.
    ChunkEnd,
    Trailers,
    /// HTTP/2, which has no lines.
    Transparent,
}

impl Framing {
    /// Goes over bytes; the place of the first that must not be.
    fn first_bad(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut place = 0;
        while place < bytes.len() {
            match &mut self.at {
                At::Transparent => return None,
                At::Body(left) | At::Chunk(left) => {
                    let step = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - place);
                    *left -= step as u64;
                    place += step;
                    match self.at {
                        At::Body(0) => self.at = At::Head,
                        At::Chunk(0) => self.at = At::ChunkEnd,
                        _ => {}
                    }
                }
                At::Head | At::ChunkSize | At::ChunkEnd | At::Trailers => {
                    place += self.line.take_inside(&bytes[place..]);
                    let byte = bytes.get(place)?;
                    match self.line.push(*byte) {
                        Pushed::Inside => {}
                        Pushed::Bad => return Some(place),
                        Pushed::Ended => {
                            let line = std::mem::take(&mut self.line);
                            if self.line_ended(&line).is_none() {
                                return Some(place);
                            }
                        }
                    }
                    place += 1;
                }
            }
        }
        None
    }

    /// What follows a line; `None` when it must not stand where it does.
    fn line_ended(&mut self, line: &Line) -> Option<()> {
        self.at = match self.at {
            At::Head => return self.head_line(line),
            At::ChunkSize => match line.chunk_size()? {
                0 => At::Trailers,
                size => At::Chunk(size),
            },
            At::ChunkEnd if line.is_empty() => At::ChunkSize,
            At::Trailers if line.is_empty() => At::Head,
            At::Trailers if !line.is_folded() => At::Trailers,
            _ => return None,
        };
        Some(())
    }

    fn head_line(&mut self, line: &Line) -> Option<()> {
        if line.is_empty() {
            // Empty lines before a request are skipped, as the parser does.
            if self.lines > 0 {
                self.at = match (self.chunked, self.length.take()) {
                    (true, _) => At::ChunkSize,
                    (false, None | Some(0)) => At::Head,
                    (false, Some(length)) => At::Body(length),
                };
                (self.lines, self.chunked, self.later) = (0, false, true);
            }
            return Some(());
        }
        self.lines += 1;
        if self.lines == 1 {
            if !self.later && line.is(HTTP_2) {
                self.at = At::Transparent;
            }
            return Some(());
        }
        if line.is_folded() {
            return None;
        }
        let (name, value) = line.field()?;
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = line.whole().then(|| number(value, 10)).flatten()?;
            if self.chunked || self.length.replace(length).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let understood = line.whole() && value.eq_ignore_ascii_case(b"chunked");
            if !understood || self.length.is_some() || std::mem::replace(&mut self.chunked, true) {
                return None;
            }
        }
        Some(())
    }
}

/// One line while it comes in. A head has a dozen of them, so none is worth memory of its own.
struct Line {
    begin: [u8; LINE_BYTES_KEPT],
    len: usize,
    return_seen: bool,
}

impl Default for Line {
    fn default() -> Self {
        Self { begin: [0; LINE_BYTES_KEPT], len: 0, return_seen: false }
    }
}

enum Pushed {
    Inside,
    Ended,
    Bad,
}

impl Line {
    /// Takes what cannot end it; how many bytes.
    fn take_inside(&mut self, bytes: &[u8]) -> usize {
        if self.return_seen {
            return 0;
        }
        let inside = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
        let room = &mut self.begin[self.len.min(LINE_BYTES_KEPT)..];
        let kept = room.len().min(inside);
        room[..kept].copy_from_slice(&bytes[..kept]);
        self.len += inside;
        inside
    }

    /// Takes a byte that may end it.
    fn push(&mut self, byte: u8) -> Pushed {
        match (byte, self.return_seen) {
            (b'\n', true) => Pushed::Ended,
            (b'\r', false) => {
                self.return_seen = true;
                Pushed::Inside
            }
            _ => Pushed::Bad,
        }
    }

    fn kept(&self) -> &[u8] {
        &self.begin[..self.len.min(LINE_BYTES_KEPT)]
    }

    /// Whether it is this one, which has its end.
    fn is(&self, line: &[u8]) -> bool {
        line.strip_suffix(b"\r\n") == Some(self.kept()) && self.whole()
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether all of it was kept.
    fn whole(&self) -> bool {
        self.len <= LINE_BYTES_KEPT
    }

    /// Whether it goes on with the line before, which nobody may send any more.
    fn is_folded(&self) -> bool {
        matches!(self.kept().first(), Some(b' ' | b'\t'))
    }

    /// Name and value of a header; `None` when blanks stand before the colon. A line whose name is
    /// longer than what was kept is the parser's business.
    fn field(&self) -> Option<(&[u8], &[u8])> {
        let kept = self.kept();
        let Some(colon) = kept.iter().position(|byte| *byte == b':') else { return Some((kept, b"")) };
        let (name, value) = kept.split_at(colon);
        (!name.last().is_some_and(u8::is_ascii_whitespace)).then(|| (name, value[1..].trim_ascii()))
    }

    /// The number that begins a chunk; extensions may follow it.
    fn chunk_size(&self) -> Option<u64> {
        let kept = self.kept();
        let digits = kept.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, rest) = kept.split_at(digits);
        let ended = match rest.first() {
            // What was not kept may be more digits.
            None => self.whole(),
            Some(byte) => matches!(byte, b';' | b' ' | b'\t'),
        };
        if ended { number(size, 16) } else { None }
    }
}

/// A number of digits alone: no sign, nothing around it.
fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(|byte| char::from(*byte).is_digit(radix));
    plain.then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    fn refused(bytes: &[u8]) -> bool {
        Framing::default().first_bad(bytes).is_some()
    }

    const HEAD: &str = "PUT /b/k HTTP/1.1\r\nHost: a\r\n";

    #[test]
    fn heads_that_two_readers_could_see_differently_are_refused() {
        for fields in [
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\ncontent-length: 6\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length : 5\r\n",
            "X-A: a\r\n Content-Length: 5\r\n",
            "X-A: a\nContent-Length: 5\r\n",
            "X-A: a\rContent-Length: 5\r\n",
        ] {
            assert!(refused(format!("{HEAD}{fields}\r\n").as_bytes()), "{fields:?}");
        }
        assert!(refused(b"\nGET / HTTP/1.1\r\n\r\n") && refused(b"GET / HTTP/1.1\n\n"));
        let padded = format!("{HEAD}Content-Length:{}5\r\n\r\n", " ".repeat(200));
        assert!(refused(padded.as_bytes()), "a length behind more blanks than are kept");
    }

    #[test]
    fn what_stands_in_a_body_is_no_head_and_what_follows_it_is_one() {
        let bodies = [
            "Content-Length: 6\r\n\r\na\nb\r\nc".to_owned(),
            "Transfer-Encoding: chunked\r\n\r\n6;x=y\r\na\nb\r\nc\r\n0\r\nx-t: v\r\n\r\n".to_owned(),
            "Content-Length: 0\r\n\r\n".to_owned(),
            "\r\n".to_owned(),
        ];
        for body in bodies {
            let one = format!("{HEAD}{body}");
            assert!(!refused(one.repeat(3).as_bytes()), "{one:?}");
            let bad = format!("{one}{one}GET / HTTP/1.1\r\nA: b\n\r\n");
            assert_eq!(Framing::default().first_bad(bad.as_bytes()), Some(bad.len() - 3), "{one:?}");
        }
        for chunks in ["5\nhello\r\n", "5\r\nhello\n", "5\r\nhellox\r\n", "x\r\n", "\r\n", "0\r\nA: b\n\r\n", "-1\r\n"]
        {
            assert!(refused(format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{chunks}").as_bytes()), "{chunks:?}");
        }
        let long = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{}5\r\nhello\r\n", "0".repeat(LINE_BYTES_KEPT));
        assert!(refused(long.as_bytes()), "a size with more digits than are kept");
    }

    #[test]
    fn http_2_is_left_alone_and_only_at_the_beginning() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert!(!refused(&[preface.as_slice(), b"\n\n\0\n"].concat()));
        assert!(refused(&[HEAD.as_bytes(), b"\r\n", preface.as_slice(), b"\n"].concat()));
    }

    #[tokio::test]
    async fn nothing_after_a_refused_byte_is_read() {
        let mut read = Vec::new();
        CheckedHeads::new(&b"GET / HTTP/1.1\nrest"[..]).read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"GET / HTTP/1.1\0\r\n\r\n");
    }

    proptest! {
        #[test]
        fn pieces_are_judged_as_the_whole_is(
            bytes in "(PUT / HTTP/1.1\r\n|Content-Length: [0-9]\r\n|Transfer-Encoding: chunked\r\n|\r\n|[0-9a-f]\r\n|[a-z\r\n]){0,24}",
            cut in any::<prop::sample::Index>(),
        ) {
            let whole = Framing::default().first_bad(bytes.as_bytes());
            let (left, right) = bytes.as_bytes().split_at(cut.index(bytes.len() + 1));
            let mut framing = Framing::default();
            let pieces = framing.first_bad(left).or_else(|| Some(left.len() + framing.first_bad(right)?));
            prop_assert_eq!(pieces, whole);
        }
    }
}
