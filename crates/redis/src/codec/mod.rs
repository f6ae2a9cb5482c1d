//! RESP2 and RESP3 on the wire.
//!
//! [`request`] decodes commands as a server receives them, [`encode`] writes replies, and [`reply`] decodes
//! replies as a client receives them. Everything is a state machine over byte slices: no socket, no buffer of
//! its own. No input makes a decoder panic, nest deeply, or allocate more than a small multiple of the bytes
//! that it was given.

mod ahead;
pub mod encode;
pub mod inline;
pub mod reply;
pub mod request;

pub use ahead::reads_ahead;
pub use encode::{Protocol, Sink, encode, encode_command};
pub use reply::{ReplyError, decode_reply};
pub use request::{Limits, ProtocolError, RequestDecoder};

/// The property that fuzzing checks: any bytes, whole or in any pieces, give the same commands and the same
/// error, and the decoders of replies return.
///
/// The first byte of `bytes` chooses the pieces.
pub fn fuzz_resp_decoder(bytes: &[u8]) {
    let Some((&choice, input)) = bytes.split_first() else {
        return;
    };
    let limits = Limits { bulk_bytes_max: 1 << 16, ..Limits::default() };
    let whole = decode_in_pieces(input, input.len().max(1), limits);
    let pieces = decode_in_pieces(input, usize::from(choice % 13) + 1, limits);
    assert_eq!(whole, pieces, "the commands depend on how the bytes arrive");
    reads_ahead(input, &mut [0; 8]);
    let mut rest = input;
    while let Ok(Some((_, used))) = decode_reply(rest) {
        rest = &rest[used..];
    }
}

/// Decodes `input` as it would arrive in pieces of `piece_bytes`.
fn decode_in_pieces(
    input: &[u8],
    piece_bytes: usize,
    limits: Limits,
) -> (Vec<txn::Args>, Option<ProtocolError>) {
    let mut decoder = RequestDecoder::new(limits);
    let mut commands = Vec::new();
    let mut buffer: Vec<u8> = Vec::new();
    for piece in input.chunks(piece_bytes) {
        buffer.extend_from_slice(piece);
        let mut rest = &buffer[..];
        loop {
            match decoder.next(&mut rest) {
                Ok(Some(command)) => commands.push(command),
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
        let used = buffer.len() - rest.len();
        buffer.drain(..used);
    }
    (commands, None)
}
