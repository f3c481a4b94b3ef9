#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_http::h3::fuzz::requests(data));
