//! A capture of many calls: connections of ten calls each, several at a time, with small and large
//! responses. One segment in a hundred is sent twice.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Result;

const FIN: u8 = 1;
const SYN: u8 = 2;
const PSH: u8 = 8;
const ACK: u8 = 16;
const MSS: usize = 1448;

struct SyntheticCapture {
    out: BufWriter<File>,
    bytes: u64,
    packets: u64,
    time_us: u64,
}

/// One connection.
struct SyntheticConnection {
    address: u32,
    port: u16,
    seq: [u32; 2],
    calls: u32,
}

/// Writes about `bytes`, with `at_once` connections open; how many packets.
pub(super) fn write(path: &Path, bytes: u64, at_once: u64) -> Result<u64> {
    let mut c = SyntheticCapture {
        out: BufWriter::with_capacity(1 << 20, File::create(path)?),
        bytes: 0,
        packets: 0,
        time_us: 0,
    };
    for n in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        c.out.write_all(&n.to_le_bytes())?;
    }
    let mut opened = 0u64;
    let mut lanes: Vec<SyntheticConnection> = Vec::new();
    let body = vec![b'x'; 20_000];
    while c.bytes < bytes {
        if (lanes.len() as u64) < at_once {
            lanes.push(open(&mut c, opened)?);
            opened += 1;
        }
        let at = (c.packets % lanes.len() as u64) as usize;
        call(&mut c, &mut lanes[at], &body)?;
        if lanes[at].calls == 10 {
            let mut done = lanes.swap_remove(at);
            c.segment(&mut done, true, FIN | ACK, &[])?;
            c.segment(&mut done, false, FIN | ACK, &[])?;
            c.segment(&mut done, true, ACK, &[])?;
        }
    }
    c.out.flush()?;
    Ok(c.packets)
}

fn open(c: &mut SyntheticCapture, n: u64) -> Result<SyntheticConnection> {
    let mut lane = SyntheticConnection {
        address: 0x0a01_0000 | (n / 50_000) as u32,
        port: 10_000 + (n % 50_000) as u16,
        seq: [n as u32, 7],
        calls: 0,
    };
    c.segment(&mut lane, true, SYN, &[])?;
    c.segment(&mut lane, false, SYN | ACK, &[])?;
    c.segment(&mut lane, true, ACK, &[])?;
    Ok(lane)
}

fn call(c: &mut SyntheticCapture, lane: &mut SyntheticConnection, body: &[u8]) -> Result<()> {
    lane.calls += 1;
    let request = format!(
        "GET /item/{} HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: bench/1\r\nAccept: */*\r\n\r\n",
        c.packets
    );
    c.segment(lane, true, PSH | ACK, request.as_bytes())?;
    let body = if lane.calls == 5 { body } else { &body[..600] };
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", body.len())
            .into_bytes();
    answer.extend_from_slice(body);
    for (i, part) in answer.chunks(MSS).enumerate() {
        c.segment(lane, false, PSH | ACK, part)?;
        if c.packets.is_multiple_of(100) {
            c.time_us += 210_000;
            lane.seq[1] = lane.seq[1].wrapping_sub(part.len() as u32);
            c.segment(lane, false, PSH | ACK, part)?;
        }
        if i % 2 == 1 {
            c.segment(lane, true, ACK, &[])?;
        }
    }
    c.segment(lane, true, ACK, &[])
}

impl SyntheticCapture {
    fn segment(
        &mut self,
        lane: &mut SyntheticConnection,
        to_server: bool,
        flags: u8,
        data: &[u8],
    ) -> Result<()> {
        self.time_us += 20;
        let (server, mine, theirs) = (0x0a02_0001u32, usize::from(!to_server), usize::from(to_server));
        let (src, dst) = if to_server { (lane.address, server) } else { (server, lane.address) };
        let ports = if to_server { [lane.port, 80] } else { [80, lane.port] };
        let ip_len = 40 + data.len();
        let mut head = [0u8; 16 + 14 + 40];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            head[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&((self.time_us / 1_000_000) as u32).to_le_bytes());
        put(&((self.time_us % 1_000_000) as u32).to_le_bytes());
        put(&(14 + ip_len as u32).to_le_bytes());
        put(&(14 + ip_len as u32).to_le_bytes());
        put(&[0; 12]);
        put(&[8, 0, 0x45, 0]);
        put(&(ip_len as u16).to_be_bytes());
        put(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
        put(&src.to_be_bytes());
        put(&dst.to_be_bytes());
        put(&ports[0].to_be_bytes());
        put(&ports[1].to_be_bytes());
        put(&lane.seq[mine].to_be_bytes());
        put(&(if flags & ACK == 0 { 0 } else { lane.seq[theirs] }).to_be_bytes());
        put(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        self.out.write_all(&head)?;
        self.out.write_all(data)?;
        self.bytes += (head.len() + data.len()) as u64;
        self.packets += 1;
        let more = data.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        lane.seq[mine] = lane.seq[mine].wrapping_add(more);
        Ok(())
    }
}
