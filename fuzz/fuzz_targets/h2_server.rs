#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_http::h2::fuzz::requests(data));
