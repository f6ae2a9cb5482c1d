//! HyperLogLogs that are told many elements, one by one, against what Redis 7.0.15 makes of them.

use crate::memory::Memory;
use txn::Reply;

#[test]
fn sketches_grow_as_in_redis() {
    let mut memory = Memory::new();
    let mut run = |words: &[&str]| memory.run(words.iter().copied().collect());
    let mut told = 0;
    // Elements, the string's length, the estimate, and the checksum at the end of the plain dump of the
    // string.
    for (elements, len, estimate, checksum) in [
        (1, 21, 1, 0xb950_b133_e7e0_e97c),
        (10, 48, 10, 0xe61e_4752_d53a_9da0),
        (100, 285, 100, 0xd891_ed99_e7aa_69f9),
        (300, 713, 302, 0xb9b0_eb53_b380_0d5d),
        (1_000, 1_906, 1_008, 0x3267_96b1_4cae_997f),
        (1_500, 2_719, 1_509, 0x1743_ec8c_df36_1f06),
        (2_000, 12_304, 2_000, 0x67ac_81fe_ee6a_ef1e),
        (5_000, 12_304, 4_968, 0xbcc2_6424_7c39_ea59),
        (20_000, 12_304, 19_901, 0x6d38_4e7f_1769_4c66),
    ] {
        for element in told..elements {
            run(&["pfadd", "sketch", &format!("e{element}")]);
        }
        told = elements;
        assert_eq!(run(&["strlen", "sketch"]), Reply::Integer(len), "{elements}");
        assert_eq!(run(&["pfcount", "sketch"]), Reply::Integer(estimate), "{elements}");
        let Reply::Bulk(dump) = run(&["dump", "sketch"]) else {
            panic!("a string has a dump");
        };
        let end = dump.last_chunk().expect("a footer");
        assert_eq!(u64::from_le_bytes(*end), checksum, "{elements}");
    }
}
