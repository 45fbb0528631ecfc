//! Bodies in frames of any size: never more payload than announced, and exactly that when the
//! stream ends well.

#![no_main]

use bytes::Bytes;
use futures::executor::block_on;
use http_body_util::{StreamBody, combinators::BoxBody};
use libfuzzer_sys::fuzz_target;
use s3_wire::{DecodedBody, Framing, checksum::ChecksumAlgorithm, sigv4::PayloadMode};
use std::convert::Infallible;

fuzz_target!(|input: (Vec<&[u8]>, u16, bool)| {
    let (frames, decoded_len, announced) = input;
    let frames: Vec<Result<_, Infallible>> = frames.into_iter().map(|frame| Ok(http_body_frame(frame))).collect();
    let framing = Framing {
        payload: PayloadMode::StreamingUnsignedTrailer,
        decoded_len: decoded_len.into(),
        wire_len: None,
        trailer: announced.then_some(ChecksumAlgorithm::Crc32),
    };
    let body: BoxBody<Bytes, Infallible> = BoxBody::new(StreamBody::new(futures::stream::iter(frames)));
    let mut body = DecodedBody::new(body, framing);
    let mut received = 0;
    while let Some(piece) = block_on(body.next()) {
        let Ok(piece) = piece else {
            assert!(body.trailers().is_none());
            return;
        };
        received += piece.len() as u64;
        assert!(received <= decoded_len.into());
    }
    assert_eq!(received, u64::from(decoded_len));
    assert_eq!(body.trailers().expect("the stream ended well").checksum.is_some(), announced);
});

fn http_body_frame(bytes: &[u8]) -> http_body::Frame<Bytes> {
    http_body::Frame::data(Bytes::copy_from_slice(bytes))
}
