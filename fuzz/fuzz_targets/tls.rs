#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_explain::passive::fuzz::tls(data));
