#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    log::fuzz_log_reader(bytes);
});
