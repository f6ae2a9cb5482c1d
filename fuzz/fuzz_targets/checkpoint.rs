#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    store::checkpoint::fuzz_reader(bytes);
});
