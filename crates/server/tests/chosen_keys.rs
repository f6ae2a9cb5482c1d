//! Clients that choose keys by their hashes.

#![allow(clippy::disallowed_methods, reason = "clocks belong to the server's tests, too")]

use crate::support::{Client, TestServer, show};
use std::time::{Duration, Instant};
use txn::{Key, Reply};

/// Keys of each kind.
const KEYS: u64 = 100_000;
/// Keys that are written in turn, so that both kinds meet the same load of the machine.
const ROUND_KEYS: u64 = 5_000;
/// How many times as long commands with chosen keys may take as those with other keys. (They take as long,
/// or half as long again. A walk over all keys with one hash took a thousand times as long.)
const RATIO_MAX: u32 = 5;

/// Ends of keys of 16 bytes. All keys with the first one have one hash, because one factor of rapidhash's
/// last multiplication is 0, as long as its secret is the published one.
const CHOSEN: [u8; 8] = [0xc6, 0xbf, 0x8f, 0x7d, 0x56, 0x65, 0x27, 0x42];
const ORDINARY: [u8; 8] = *b"ordinary";

fn key(number: u64, end: [u8; 8]) -> Vec<u8> {
    [number.to_le_bytes(), end].concat()
}

/// How long a client waits for the replies to commands that it sends at once.
fn time(client: &mut Client, commands: impl Iterator<Item = Vec<Vec<u8>>>, reply: &str) -> Duration {
    let mut bytes = Vec::new();
    let mut count = 0;
    for words in commands {
        redis_surface::codec::encode_command(&words, &mut bytes);
        count += 1;
    }
    let before = Instant::now();
    client.send_raw(&bytes);
    for _ in 0..count {
        assert_eq!(show(&client.read()), reply);
    }
    before.elapsed()
}

#[test]
fn keys_that_were_chosen_by_their_hash_take_about_as_long_as_others() {
    assert_eq!(Key::new(&key(1, CHOSEN)).hash64(), Key::new(&key(2, CHOSEN)).hash64());
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    // Writes to new keys, to known ones, and reads.
    for (name, reply) in [("SET", "OK"), ("SET", "OK"), ("GET", "\"value\"")] {
        let (mut chosen, mut ordinary) = (Duration::ZERO, Duration::ZERO);
        for first in (0..KEYS).step_by(ROUND_KEYS as usize) {
            for (end, taken) in [(CHOSEN, &mut chosen), (ORDINARY, &mut ordinary)] {
                let commands = (first..first + ROUND_KEYS).map(|number| {
                    let mut words = vec![name.as_bytes().to_vec(), key(number, end)];
                    words.extend((name == "SET").then(|| b"value".to_vec()));
                    words
                });
                *taken += time(&mut client, commands, reply);
            }
            assert!(
                chosen <= ordinary * RATIO_MAX + Duration::from_secs(1),
                "{name} of {} chosen keys took {chosen:?}, and of others {ordinary:?}",
                first + ROUND_KEYS
            );
        }
        println!("{name}: {chosen:?} for {KEYS} chosen keys, {ordinary:?} for others");
    }
    // All keys are listed once. Those with one hash come on one page, whatever COUNT says.
    let (mut cursor, mut listed, mut largest) = (b"0".to_vec(), 0, 0);
    loop {
        let words = [b"SCAN".to_vec(), cursor, b"COUNT".to_vec(), b"1000".to_vec()];
        let mut bytes = Vec::new();
        redis_surface::codec::encode_command(&words, &mut bytes);
        client.send_raw(&bytes);
        let reply = client.read();
        let Reply::Array(parts) = &reply else { panic!("{reply:?}") };
        let [Reply::Bulk(next), Reply::Array(keys)] = &parts[..] else { panic!("{reply:?}") };
        listed += keys.len() as u64;
        largest = largest.max(keys.len() as u64);
        if next.as_bytes() == b"0" {
            break;
        }
        cursor = next.as_bytes().to_vec();
    }
    assert_eq!(listed, 2 * KEYS);
    assert!((KEYS..KEYS + 2_000).contains(&largest), "{largest} keys on one page");
}
