#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| redis_surface::codec::fuzz_resp_decoder(bytes));
