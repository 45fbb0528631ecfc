//! Against RFC 1321's vectors and another implementation.

use hash_lanes::{Md5, update_all};
use md5::Digest as _;
use proptest::{collection::vec, prelude::*};

fn of(bytes: &[u8]) -> [u8; 16] {
    let mut md5 = Md5::new();
    md5.update(bytes);
    md5.finalize()
}

fn other(bytes: &[u8]) -> [u8; 16] {
    md5::Md5::digest(bytes).into()
}

fn hex(digest: [u8; 16]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_vectors_of_rfc_1321_hold() {
    for (text, digest) in [
        ("", "d41d8cd98f00b204e9800998ecf8427e"),
        ("a", "0cc175b9c0f1b6a831c399e269772661"),
        ("abc", "900150983cd24fb0d6963f7d28e17f72"),
        ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"),
    ] {
        assert_eq!(hex(of(text.as_bytes())), digest, "{text}");
    }
}

#[test]
fn every_length_up_to_four_blocks_gives_the_same_as_another_implementation() {
    let bytes: Vec<u8> = (0..256_u32).map(|n| (n.wrapping_mul(97) >> 1) as u8).collect();
    for len in 0..=bytes.len() {
        assert_eq!(of(&bytes[..len]), other(&bytes[..len]), "{len} bytes");
    }
}

#[test]
fn every_number_of_streams_gives_what_each_gives_alone() {
    for count in 0..=40 {
        let texts: Vec<Vec<u8>> = (0..count).map(|n: usize| vec![n as u8; 300 + 64 * (n % 5)]).collect();
        let mut streams = vec![Md5::new(); count];
        update_all(&mut streams.iter_mut().zip(texts.iter().map(Vec::as_slice)).collect::<Vec<_>>());
        for (stream, text) in streams.into_iter().zip(&texts) {
            assert_eq!(stream.finalize(), other(text), "{count} streams");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever comes for whichever stream in whatever pieces: together as alone.
    #[test]
    fn streams_fed_together_in_pieces_give_the_digests_of_their_contents(
        rounds in vec(vec((0_usize..20, vec(any::<u8>(), 0..700)), 0..24), 0..6),
    ) {
        let mut streams = vec![Md5::new(); 20];
        let mut contents = vec![Vec::new(); 20];
        for round in &rounds {
            let mut of_stream: Vec<&[u8]> = vec![&[]; 20];
            for (stream, piece) in round {
                of_stream[*stream] = piece;
            }
            for (content, piece) in contents.iter_mut().zip(&of_stream) {
                content.extend_from_slice(piece);
            }
            update_all(&mut streams.iter_mut().zip(of_stream).collect::<Vec<_>>());
        }
        for (stream, content) in streams.into_iter().zip(&contents) {
            prop_assert_eq!(stream.finalize(), other(content));
        }
    }
}
