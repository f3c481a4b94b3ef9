//! An unchanged program behind a link that loses segments. Needs root, /dev/net/tun and redis.

mod launcher;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use linerate_netbox::NetBox;
use linerate_skips::{need, program, skip};

use launcher::TestLauncher;

const PORT: u16 = 6379;
const VALUE: usize = 20 << 20;
const PATIENCE: Duration = Duration::from_secs(120);

fn pattern() -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..VALUE).map(|_| next()).collect()
}

#[test]
fn twenty_megabytes_arrive_both_ways_though_one_segment_in_a_hundred_is_lost() {
    if let Some(why) = NetBox::unavailable() {
        return skip(need::NAMESPACES, why);
    }
    let Some(redis) = program("redis-server") else { return };
    let net = NetBox::builder().loss(0.01).seed(7).start().expect("a network");
    let ip = net.server().ip();
    let library = env::current_exe().expect("a program").with_file_name("liblinerate_bypass.so");
    let said = tempfile::NamedTempFile::new().expect("a file");
    let mut command = net.server().command(redis);
    command.args(["--bind", &ip.to_string(), "--protected-mode", "no", "--save", "", "--daemonize", "no"]);
    command.stdout(said.reopen().expect("it")).stderr(said.reopen().expect("it"));
    command.env("LD_PRELOAD", library);
    let at = SocketAddr::new(ip.into(), PORT);
    let _launcher =
        net.server().run(|| TestLauncher::start("net0", at, &mut command)).expect("the namespace");
    let _server = net.server().spawn(command).expect("it starts");
    let begin = Instant::now();
    let words = || fs::read_to_string(said.path()).expect("what it wrote");
    while !words().contains("is served by TCP in user space") {
        assert!(begin.elapsed() < PATIENCE, "{}", words());
        thread::sleep(Duration::from_millis(10));
    }
    let back = net.client().run(|| {
        let stream = TcpStream::connect((ip, PORT)).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut client = BufReader::new(stream);
        write!(client.get_mut(), "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${VALUE}\r\n").expect("sent");
        client.get_mut().write_all(&pattern()).expect("sent");
        client.get_mut().write_all(b"\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").expect("sent");
        let mut line = String::new();
        client.read_line(&mut line).expect("a line");
        client.read_line(&mut line).expect("a line");
        assert_eq!(line, format!("+OK\r\n${VALUE}\r\n"));
        let mut back = vec![0; VALUE];
        client.read_exact(&mut back).expect("all of it");
        back
    });
    assert!(back.expect("the namespace") == pattern());
}
