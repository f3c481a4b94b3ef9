#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_http::client::fuzz::alt_svc(data));
