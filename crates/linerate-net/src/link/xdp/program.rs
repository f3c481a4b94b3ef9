//! The XDP program, which selects our frames. It is assembled here, so that no BPF compiler is
//! needed. The kernel's verifier proves that it ends and stays within the frame.

use std::net::IpAddr;

use super::ethernet::Mac;
use super::steer::{Ports, Rule};
use crate::Time;
use crate::limits::EXTENSION_HEADERS;

/// Verdicts of an XDP program (linux/bpf.h).
pub(super) const XDP_PASS: u32 = 2;
pub(super) const XDP_DROP: u32 = 1;

/// The helpers `bpf_map_lookup_elem`, `bpf_map_update_elem`, `bpf_map_delete_elem`, `bpf_ktime_get_ns`,
/// `bpf_redirect` and `bpf_redirect_map`.
const LOOK_UP: i32 = 1;
const UPDATE: i32 = 2;
const DELETE: i32 = 3;
const CLOCK: i32 = 5;
const REDIRECT: i32 = 23;
const REDIRECT_MAP: i32 = 51;

/// Registers: 0 is the result; 1 to 5 are arguments and scratch; 6 to 9 survive calls; 10 is the
/// stack.
type Reg = u8;

/// Opcodes (linux/bpf_common.h, linux/bpf.h).
mod code {
    pub(super) const LOAD_IMM64: u8 = 0x18;
    pub(super) const LOAD_U8: u8 = 0x71;
    pub(super) const LOAD_U16: u8 = 0x69;
    pub(super) const LOAD_U32: u8 = 0x61;
    pub(super) const STORE_U16: u8 = 0x6b;
    pub(super) const STORE_U32: u8 = 0x63;
    /// Stores the immediate, extended to 64 bits.
    pub(super) const STORE_IMM64: u8 = 0x7a;
    pub(super) const MOVE: u8 = 0xbf;
    pub(super) const MOVE_IMM: u8 = 0xb7;
    pub(super) const ADD: u8 = 0x0f;
    pub(super) const ADD_IMM: u8 = 0x07;
    pub(super) const AND_IMM: u8 = 0x57;
    pub(super) const SHIFT_LEFT_IMM: u8 = 0x67;
    pub(super) const SHIFT_RIGHT_IMM: u8 = 0x77;
    /// Converts from network order as many bits as the immediate says.
    pub(super) const TO_HOST: u8 = 0xdc;
    pub(super) const JUMP: u8 = 0x05;
    pub(super) const JUMP_GREATER: u8 = 0x2d;
    pub(super) const JUMP_LESS_IMM: u8 = 0xa5;
    pub(super) const JUMP_EQUAL: u8 = 0x1d;
    pub(super) const JUMP_EQUAL_IMM: u8 = 0x15;
    pub(super) const JUMP_DIFFERENT_IMM: u8 = 0x55;
    pub(super) const JUMP_SET_IMM: u8 = 0x45;
    /// Compares the lower 32 bits only.
    pub(super) const JUMP_DIFFERENT_IMM32: u8 = 0x56;
    pub(super) const CALL: u8 = 0x85;
    pub(super) const EXIT: u8 = 0x95;
}

/// A jump target, possibly not placed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label(usize);

#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    to: Reg,
    from: Reg,
    offset: i16,
    value: i32,
}

impl Instruction {
    fn encode(self) -> u64 {
        let registers =
            if cfg!(target_endian = "big") { self.to << 4 | self.from } else { self.from << 4 | self.to };
        let [o0, o1] = self.offset.to_ne_bytes();
        let [v0, v1, v2, v3] = self.value.to_ne_bytes();
        u64::from_ne_bytes([self.code, registers, o0, o1, v0, v1, v2, v3])
    }
}

/// The instructions so far.
#[derive(Default)]
struct Assembler {
    instructions: Vec<Instruction>,
    /// Position of each label.
    places: Vec<Option<usize>>,
    /// Positions of jumps, and their labels.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.instructions.len());
    }

    fn put(&mut self, code: u8, to: Reg, from: Reg, offset: i16, value: i32) {
        self.instructions.push(Instruction { code, to, from, offset, value });
    }

    fn load(&mut self, code: u8, to: Reg, from: Reg, offset: i16) {
        self.put(code, to, from, offset, 0);
    }

    fn immediate(&mut self, code: u8, to: Reg, value: i32) {
        self.put(code, to, 0, 0, value);
    }

    fn jump(&mut self, code: u8, left: Reg, right: Reg, value: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.put(code, left, right, 0, value);
    }

    fn is_used(&self, label: Label) -> bool {
        self.jumps.iter().any(|(_, used)| *used == label)
    }

    /// All jumps go forward to placed labels, and programs are short, so the offsets fit.
    fn finish(mut self) -> Vec<u64> {
        for &(at, label) in &self.jumps {
            let to = self.places[label.0].unwrap_or(at + 1);
            self.instructions[at].offset = (to - at - 1) as i16;
        }
        self.instructions.into_iter().map(Instruction::encode).collect()
    }
}

/// The program's action for our frames.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ours {
    /// Redirects them to the socket of their queue in this map, or to the kernel if there is none.
    ToSocket {
        /// The map's descriptor.
        map: u32,
    },
    /// The same for listeners of the kernel's whose connections processes take over and leave again.
    ToProcesses(SharingMaps),
    /// Only returns this verdict, for tests.
    #[cfg(test)]
    Say(u32),
}

/// The maps of a program whose sockets belong to several processes, by their descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharingMaps {
    /// A queue's socket, if a process has it.
    pub(super) sockets: u32,
    /// A queue's mode and who reads it: [`mode_of_queue`].
    pub(super) modes: u32,
    /// There are several queues, which several processes may have.
    pub(super) has_several: bool,
    /// Connections of the kernel's: [`super::flow_key`], and when they began ([`stamp`]).
    pub(super) kernels: u32,
    /// Connections that a queue's socket has got and that their peers have not ended: the same keys, and
    /// the queue.
    pub(super) flows: u32,
    /// Connections of processes that have given their queues up: the same keys, and the interface that
    /// such a process reads.
    pub(super) detours: u32,
}

/// Which frames of a queue go to its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum QueueMode {
    /// All.
    All = 0,
    /// All but those of the kernel's connections and those that take a detour.
    AllButKernels = 1,
    /// The same, and new connections become the kernel's.
    NewToKernel = 3,
}

/// Bits of a queue's mode; who reads it is above them.
const MODE_BITS: u32 = 2;

/// A queue's mode, and a number that it has in common with the other queues of its process.
pub(super) fn mode_of_queue(mode: QueueMode, process: u32) -> u32 {
    process << MODE_BITS | mode as u32
}

/// Until the program's clock shows the next number, nanoseconds: a power of two.
const STAMP_BITS: u32 = 20;

/// What the program's clock shows at a time: about milliseconds.
pub(super) fn stamp(now: Time) -> u32 {
    (now.as_nanos() >> STAMP_BITS) as u32
}

// Registers with a fixed use.
const CONTEXT: Reg = 6;
const FRAME: Reg = 2;
const END: Reg = 3;
const PORT: Reg = 5;
const SCRATCH: Reg = 0;
/// Nonzero if the segment is in a fragment, or may be.
const FRAGMENT: Reg = 9;
/// An IPv6 extension header, and the number of the header that it is.
const HEADER: Reg = 8;
const NEXT: Reg = 7;

// Offsets in a frame, bytes from its start (Ethernet without a VLAN tag).
const ETHER_TYPE: i16 = 12;
const IP: i16 = 14;
const IPV4_HEADER: i32 = 20;
const IPV6_HEADER: i32 = 40;
const TCP: i32 = 6;
const ICMP: i32 = 1;
const ICMPV6: i32 = 58;
/// Numbers of IPv6's extension headers, and the length of the shortest.
const HOP_BY_HOP: i32 = 0;
const ROUTING: i32 = 43;
const FRAGMENT_V6: i32 = 44;
const DESTINATION: i32 = 60;
const SHORTEST_HEADER: i32 = 8;
/// Length of both ports of a segment, and the offset of the destination port.
const PORTS: i32 = 4;
const TO_PORT: i16 = 2;
const ICMP_HEADER: i16 = 8;
/// Codes of the messages that are ours: RFC 792 (type 3), RFC 4443 section 3.1 (type 1).
const MESSAGES: [i32; 6] = [2, 3, 4, 9, 10, 13];
const MESSAGES_V6: [i32; 2] = [1, 4];
/// The stack register, and what is kept there: the key of a flow, and the number of the queue.
const STACK: Reg = 10;
const KEY: i16 = -24;
const KEY_PORTS: i16 = KEY + 16;
const QUEUE: i16 = -28;
const STAMP: i16 = -32;
const MODE: i16 = -36;
/// Another queue's number, where there is no stamp.
const OTHER: i16 = STAMP;
/// After a frame was found to be ours and no fragment: the interface of its detour.
const INTERFACE: Reg = FRAGMENT;
/// Its TCP header, and its flags if it may begin a connection.
const SEGMENT: Reg = HEADER;
const FLAGS: Reg = NEXT;
const FLAGS_AT: i16 = 13;
const SYN: i32 = 0x02;
/// FIN, SYN, RST and ACK; and those that end what a peer sends.
const OF_INTEREST: i32 = 0x17;
const ENDS: i32 = 0x05;
/// Bytes of a segment that every ICMP error quotes: ports and sequence number.
const QUOTED: i32 = 8;

/// Builds the program for these rules. It redirects TCP segments to our card that match a rule, and
/// messages that such a segment of ours was too large (ICMP "fragmentation needed", ICMPv6 "packet too
/// big"), or that nothing can be reached by it (protocol, port and prohibited). The kernel would drop
/// those messages, since it knows no such connection. All other frames pass to the kernel, for example those for other cards, and broadcasts.
///
/// The program drops the first fragment of a segment that would match. The kernel would reassemble
/// it and answer with a reset, which ends a good connection. It cannot reassemble the other
/// fragments alone.
pub(super) fn program(rules: &[Rule], mac: Mac, ours: Ours) -> Vec<u64> {
    let mut a = Assembler::default();
    let (pass, hit, v6) = (a.label(), a.label(), a.label());
    let (icmp, icmpv6, drop) = (a.label(), a.label(), a.label());
    let marks = match ours {
        Ours::ToProcesses(_) => FlowMarks([(); 5].map(|()| a.label())),
        _ => FlowMarks([hit; 5]),
    };
    a.load(code::MOVE, CONTEXT, 1, 0);
    a.load(code::LOAD_U32, FRAME, CONTEXT, 0);
    a.load(code::LOAD_U32, END, CONTEXT, 4);
    a.immediate(code::MOVE_IMM, FRAGMENT, 0);
    must_have(&mut a, i32::from(IP) + IPV4_HEADER, pass);
    to_card(&mut a, mac, pass);
    a.load(code::LOAD_U16, SCRATCH, FRAME, ETHER_TYPE);
    a.immediate(code::TO_HOST, SCRATCH, 16);
    a.jump(code::JUMP_EQUAL_IMM, SCRATCH, 0, 0x86dd, v6);
    a.jump(code::JUMP_DIFFERENT_IMM, SCRATCH, 0, 0x0800, pass);
    let [hit_v4, hit_v6, behind_v6, told_v4, told_v6] = marks.0;
    ipv4(&mut a, rules, icmp, pass, hit_v4);
    a.place(v6);
    ipv6(&mut a, rules, icmpv6, pass, (hit_v6, behind_v6, hit));
    a.place(icmp);
    message_v4(&mut a, rules, pass, told_v4);
    a.place(icmpv6);
    message_v6(&mut a, rules, pass, told_v6);
    if let Ours::ToProcesses(maps) = ours {
        flow_of(&mut a, marks, drop);
        choose(&mut a, maps, pass, hit, drop);
    }
    a.place(hit);
    a.jump(code::JUMP_DIFFERENT_IMM, FRAGMENT, 0, 0, drop);
    match ours {
        Ours::ToSocket { map } | Ours::ToProcesses(SharingMaps { sockets: map, .. }) => {
            a.load(code::LOAD_U32, 2, CONTEXT, RECEIVE_QUEUE);
            map_address(&mut a, map);
            a.immediate(code::MOVE_IMM, 3, XDP_PASS as i32);
            a.immediate(code::CALL, 0, REDIRECT_MAP);
        }
        #[cfg(test)]
        Ours::Say(verdict) => a.immediate(code::MOVE_IMM, 0, verdict as i32),
    }
    a.put(code::EXIT, 0, 0, 0, 0);
    a.place(pass);
    a.immediate(code::MOVE_IMM, 0, XDP_PASS as i32);
    a.put(code::EXIT, 0, 0, 0, 0);
    a.place(drop);
    a.immediate(code::MOVE_IMM, 0, XDP_DROP as i32);
    a.put(code::EXIT, 0, 0, 0, 0);
    a.finish()
}

/// Where frames that are ours go on, by how they were found: IPv4, IPv6, IPv6 behind extension headers,
/// ICMP, ICMPv6.
#[derive(Clone, Copy)]
struct FlowMarks([Label; 5]);

/// `xdp_md.rx_queue_index` (linux/bpf.h).
const RECEIVE_QUEUE: i16 = 16;

/// The first argument is a map.
fn map_address(a: &mut Assembler, map: u32) {
    a.put(code::LOAD_IMM64, 1, 1, 0, map as i32); // BPF_PSEUDO_MAP_FD
    a.put(0, 0, 0, 0, 0); // its second half
}

/// The second argument points to the stack.
fn on_stack(a: &mut Assembler, argument: Reg, at: i16) {
    a.load(code::MOVE, argument, STACK, 0);
    a.immediate(code::ADD_IMM, argument, i32::from(at));
}

/// Notes the key of the flow that a frame belongs to, and its flags. First fragments are dropped.
fn flow_of(a: &mut Assembler, marks: FlowMarks, drop: Label) {
    let [hit_v4, hit_v6, behind_v6, told_v4, told_v6] = marks.0;
    let (segment, known) = (a.label(), a.label());
    // The verifier refuses instructions that nothing reaches: a family may have no rule.
    if a.is_used(hit_v4) {
        a.place(hit_v4);
        // The header that `ipv4` found.
        a.load(code::MOVE, SEGMENT, 4, 0);
        peer_v4(a, IP + 12);
        a.jump(code::JUMP, 0, 0, 0, segment);
    }
    if a.is_used(hit_v6) {
        a.place(hit_v6);
        a.load(code::MOVE, SEGMENT, FRAME, 0);
        a.immediate(code::ADD_IMM, SEGMENT, i32::from(IP) + IPV6_HEADER);
        a.place(behind_v6);
        peer_v6(a, IP + 8);
    }
    a.place(segment);
    a.jump(code::JUMP_DIFFERENT_IMM, FRAGMENT, 0, 0, drop);
    ports(a, SEGMENT, 0, TO_PORT);
    a.immediate(code::MOVE_IMM, FLAGS, 0);
    a.load(code::MOVE, 4, SEGMENT, 0);
    a.immediate(code::ADD_IMM, 4, i32::from(FLAGS_AT) + 1);
    a.jump(code::JUMP_GREATER, 4, END, 0, known);
    a.load(code::LOAD_U8, FLAGS, SEGMENT, FLAGS_AT);
    a.immediate(code::AND_IMM, FLAGS, OF_INTEREST);
    a.jump(code::JUMP, 0, 0, 0, known);
    // Quoted segments went the other way, and begin nothing.
    if a.is_used(told_v4) {
        const QUOTE: i16 = IP + IPV4_HEADER as i16 + ICMP_HEADER;
        a.place(told_v4);
        peer_v4(a, QUOTE + 16);
        ports(a, FRAME, QUOTE + IPV4_HEADER as i16 + TO_PORT, QUOTE + IPV4_HEADER as i16);
        a.immediate(code::MOVE_IMM, FLAGS, 0);
        a.jump(code::JUMP, 0, 0, 0, known);
    }
    if a.is_used(told_v6) {
        const QUOTE: i16 = IP + IPV6_HEADER as i16 + ICMP_HEADER;
        a.place(told_v6);
        peer_v6(a, QUOTE + 24);
        ports(a, FRAME, QUOTE + IPV6_HEADER as i16 + TO_PORT, QUOTE + IPV6_HEADER as i16);
        a.immediate(code::MOVE_IMM, FLAGS, 0);
    }
    a.place(known);
}

fn peer_v4(a: &mut Assembler, at: i16) {
    a.put(code::STORE_IMM64, STACK, 0, KEY, 0);
    a.put(code::STORE_IMM64, STACK, 0, KEY + 8, 0);
    a.load(code::LOAD_U32, SCRATCH, FRAME, at);
    a.load(code::STORE_U32, STACK, SCRATCH, KEY);
}

fn peer_v6(a: &mut Assembler, at: i16) {
    for word in 0..4 {
        a.load(code::LOAD_U32, SCRATCH, FRAME, at + 4 * word);
        a.load(code::STORE_U32, STACK, SCRATCH, KEY + 4 * word);
    }
}

fn ports(a: &mut Assembler, from: Reg, peers: i16, ours: i16) {
    a.load(code::LOAD_U16, SCRATCH, from, peers);
    a.load(code::STORE_U16, STACK, SCRATCH, KEY_PORTS);
    a.load(code::LOAD_U16, SCRATCH, from, ours);
    a.load(code::STORE_U16, STACK, SCRATCH, KEY_PORTS + 2);
}

/// Passes the frames of the kernel's connections on, and notes those that begin. A queue without a socket
/// has only such. Where the socket gets new connections, one that was the kernel's has ended for its peer.
fn choose(a: &mut Assembler, maps: SharingMaps, pass: Label, hit: Label, drop: Label) {
    let (new_to_kernel, unowned, note, redirected, ends) =
        (a.label(), a.label(), a.label(), a.label(), a.label());
    a.load(code::LOAD_U32, SCRATCH, CONTEXT, RECEIVE_QUEUE);
    a.load(code::STORE_U32, STACK, SCRATCH, QUEUE);
    call(a, LOOK_UP, maps.modes, QUEUE);
    a.jump(code::JUMP_EQUAL_IMM, 0, 0, 0, pass);
    a.load(code::LOAD_U32, SEGMENT, 0, 0);
    a.load(code::STORE_U32, STACK, SEGMENT, MODE);
    a.immediate(code::AND_IMM, SEGMENT, (1 << MODE_BITS) - 1);
    detour(a, maps);
    call(a, LOOK_UP, maps.sockets, QUEUE);
    a.jump(code::JUMP_EQUAL_IMM, 0, 0, 0, unowned);
    a.jump(code::JUMP_EQUAL_IMM, SEGMENT, 0, QueueMode::All as i32, redirected);
    call(a, LOOK_UP, maps.kernels, KEY);
    a.jump(code::JUMP_EQUAL_IMM, SEGMENT, 0, QueueMode::NewToKernel as i32, new_to_kernel);
    a.jump(code::JUMP_EQUAL_IMM, 0, 0, 0, redirected);
    a.jump(code::JUMP_DIFFERENT_IMM, FLAGS, 0, SYN, pass);
    call(a, DELETE, maps.kernels, KEY);
    a.place(redirected);
    if maps.has_several {
        strayed(a, maps, drop);
    }
    a.jump(code::JUMP_SET_IMM, FLAGS, 0, ENDS, ends);
    a.jump(code::JUMP_DIFFERENT_IMM, FLAGS, 0, SYN, hit);
    map_address(a, maps.flows);
    on_stack(a, 2, KEY);
    on_stack(a, 3, QUEUE);
    a.immediate(code::MOVE_IMM, 4, 0);
    a.immediate(code::CALL, 0, UPDATE);
    a.jump(code::JUMP, 0, 0, 0, hit);
    a.place(ends);
    call(a, DELETE, maps.flows, KEY);
    a.jump(code::JUMP, 0, 0, 0, hit);
    a.place(new_to_kernel);
    a.jump(code::JUMP_EQUAL_IMM, FLAGS, 0, SYN, note);
    // An old entry of an ended connection costs a question to its peer, should the process be killed.
    a.jump(code::JUMP_EQUAL_IMM, 0, 0, 0, hit);
    a.jump(code::JUMP, 0, 0, 0, pass);
    a.place(unowned);
    a.jump(code::JUMP_DIFFERENT_IMM, FLAGS, 0, SYN, pass);
    a.place(note);
    a.immediate(code::CALL, 0, CLOCK);
    a.immediate(code::SHIFT_RIGHT_IMM, 0, STAMP_BITS as i32);
    a.load(code::STORE_U32, STACK, 0, STAMP);
    map_address(a, maps.kernels);
    on_stack(a, 2, KEY);
    on_stack(a, 3, STAMP);
    a.immediate(code::MOVE_IMM, 4, 0);
    a.immediate(code::CALL, 0, UPDATE);
    // A full map leaves a connection that the kernel begins, and a socket may get the rest of.
    a.jump(code::JUMP, 0, 0, 0, pass);
}

/// Drops the frames of connections that another process got by another queue: a kernel of Linux sends by another queue of
/// a veth pair after a timeout, when it sends again. This process would answer with a reset. One of the next timeouts leads
/// them back. A SYN begins a connection here.
fn strayed(a: &mut Assembler, maps: SharingMaps, drop: Label) {
    let stays = a.label();
    a.jump(code::JUMP_EQUAL_IMM, FLAGS, 0, SYN, stays);
    call(a, LOOK_UP, maps.flows, KEY);
    a.jump(code::JUMP_EQUAL_IMM, 0, 0, 0, stays);
    a.load(code::LOAD_U32, SCRATCH, 0, 0);
    a.load(code::STORE_U32, STACK, SCRATCH, OTHER);
    call(a, LOOK_UP, maps.modes, OTHER);
    a.jump(code::JUMP_EQUAL_IMM, 0, 0, 0, stays);
    a.load(code::LOAD_U32, 1, 0, 0);
    a.immediate(code::SHIFT_RIGHT_IMM, 1, MODE_BITS as i32);
    a.load(code::LOAD_U32, 2, STACK, MODE);
    a.immediate(code::SHIFT_RIGHT_IMM, 2, MODE_BITS as i32);
    a.jump(code::JUMP_EQUAL, 1, 2, 0, stays);
    a.jump(code::JUMP, 0, 0, 0, drop);
    a.place(stays);
}

/// Calls a helper with a map and a key on the stack.
fn call(a: &mut Assembler, helper: i32, map: u32, key: i16) {
    map_address(a, map);
    on_stack(a, 2, key);
    a.immediate(code::CALL, 0, helper);
}

/// Sends the frames of a process that has given its queues up to the interface that it reads. A SYN says
/// that its connection has ended for the peer. The queue's mode is in its register.
fn detour(a: &mut Assembler, maps: SharingMaps) {
    let (none, ended, last, goes) = (a.label(), a.label(), a.label(), a.label());
    a.jump(code::JUMP_EQUAL_IMM, SEGMENT, 0, QueueMode::All as i32, none);
    call(a, LOOK_UP, maps.detours, KEY);
    a.jump(code::JUMP_EQUAL_IMM, 0, 0, 0, none);
    a.jump(code::JUMP_EQUAL_IMM, FLAGS, 0, SYN, ended);
    a.load(code::LOAD_U32, INTERFACE, 0, 0);
    a.jump(code::JUMP_SET_IMM, FLAGS, 0, ENDS, last);
    a.jump(code::JUMP, 0, 0, 0, goes);
    a.place(last);
    call(a, DELETE, maps.flows, KEY);
    a.place(goes);
    a.load(code::MOVE, 1, INTERFACE, 0);
    a.immediate(code::MOVE_IMM, 2, 0);
    a.immediate(code::CALL, 0, REDIRECT);
    a.put(code::EXIT, 0, 0, 0, 0);
    a.place(ended);
    call(a, DELETE, maps.detours, KEY);
    a.place(none);
}

/// Continues only if the frame is addressed to this card.
fn to_card(a: &mut Assembler, Mac(mac): Mac, otherwise: Label) {
    let [b0, b1, b2, b3, b4, b5] = mac;
    a.load(code::LOAD_U32, SCRATCH, FRAME, 0);
    a.jump(code::JUMP_DIFFERENT_IMM32, SCRATCH, 0, i32::from_ne_bytes([b0, b1, b2, b3]), otherwise);
    a.load(code::LOAD_U16, SCRATCH, FRAME, 4);
    a.jump(code::JUMP_DIFFERENT_IMM, SCRATCH, 0, i32::from(u16::from_ne_bytes([b4, b5])), otherwise);
}

/// Continues only if the frame has this many bytes.
fn must_have(a: &mut Assembler, bytes: i32, otherwise: Label) {
    a.load(code::MOVE, 4, FRAME, 0);
    a.immediate(code::ADD_IMM, 4, bytes);
    a.jump(code::JUMP_GREATER, 4, END, 0, otherwise);
}

fn ipv4(a: &mut Assembler, rules: &[Rule], icmp: Label, pass: Label, hit: Label) {
    a.load(code::LOAD_U8, SCRATCH, FRAME, IP + 9);
    a.jump(code::JUMP_DIFFERENT_IMM, SCRATCH, 0, TCP, icmp);
    // Only the first fragment has ports: its offset is zero, and "more fragments" may be set.
    a.load(code::LOAD_U16, SCRATCH, FRAME, IP + 6);
    a.immediate(code::TO_HOST, SCRATCH, 16);
    a.jump(code::JUMP_SET_IMM, SCRATCH, 0, 0x1fff, pass);
    a.immediate(code::AND_IMM, SCRATCH, 0x2000);
    a.load(code::MOVE, FRAGMENT, SCRATCH, 0);
    // Version 4, with a header of any length, since there may be options.
    a.load(code::LOAD_U8, SCRATCH, FRAME, IP);
    a.load(code::MOVE, 7, SCRATCH, 0);
    a.immediate(code::AND_IMM, SCRATCH, 0xf0);
    a.jump(code::JUMP_DIFFERENT_IMM, SCRATCH, 0, 0x40, pass);
    a.immediate(code::AND_IMM, 7, 0x0f);
    a.immediate(code::SHIFT_LEFT_IMM, 7, 2);
    a.jump(code::JUMP_LESS_IMM, 7, 0, IPV4_HEADER, pass);
    a.load(code::MOVE, 4, FRAME, 0);
    a.put(code::ADD, 4, 7, 0, 0);
    a.immediate(code::ADD_IMM, 4, i32::from(IP));
    a.load(code::MOVE, 8, 4, 0);
    a.immediate(code::ADD_IMM, 8, PORTS);
    a.jump(code::JUMP_GREATER, 8, END, 0, pass);
    a.load(code::LOAD_U16, PORT, 4, TO_PORT);
    a.immediate(code::TO_HOST, PORT, 16);
    compare_v4(a, rules, IP + 16, pass, hit);
}

/// `hits`: for a header that follows the fixed one, for one behind others, and for a chain of headers that
/// is too long.
fn ipv6(a: &mut Assembler, rules: &[Rule], icmp: Label, pass: Label, hits: (Label, Label, Label)) {
    let (hit, hit_behind, too_long) = hits;
    let (whole, behind) = (a.label(), a.label());
    must_have(a, i32::from(IP) + IPV6_HEADER + PORTS, pass);
    a.load(code::LOAD_U8, SCRATCH, FRAME, IP + 6);
    a.jump(code::JUMP_EQUAL_IMM, SCRATCH, 0, TCP, whole);
    a.jump(code::JUMP_EQUAL_IMM, SCRATCH, 0, ICMPV6, icmp);
    extension_headers(a, rules, behind, pass, too_long);
    a.place(whole);
    a.load(code::LOAD_U16, PORT, FRAME, IP + IPV6_HEADER as i16 + TO_PORT);
    a.immediate(code::TO_HOST, PORT, 16);
    compare_v6(a, rules, IP + 24, pass, hit);
    a.place(behind);
    within(a, PORTS, pass);
    a.load(code::LOAD_U16, PORT, HEADER, TO_PORT);
    a.immediate(code::TO_HOST, PORT, 16);
    compare_v6(a, rules, IP + 24, pass, hit_behind);
}

/// Continues only if the frame has this many bytes from the current header on.
fn within(a: &mut Assembler, bytes: i32, otherwise: Label) {
    a.load(code::MOVE, 4, HEADER, 0);
    a.immediate(code::ADD_IMM, 4, bytes);
    a.jump(code::JUMP_GREATER, 4, END, 0, otherwise);
}

/// Walks extension headers (RFC 8200 section 4) until TCP begins. `NEXT` is in the scratch register.
/// Options, and routing headers that do not lead on, are passed over. A first fragment is marked. A
/// chain that is too long for us is dropped, because the kernel would find TCP behind it, and reset
/// the connection.
fn extension_headers(a: &mut Assembler, rules: &[Rule], tcp: Label, pass: Label, hit: Label) {
    a.load(code::MOVE, NEXT, SCRATCH, 0);
    a.load(code::MOVE, HEADER, FRAME, 0);
    a.immediate(code::ADD_IMM, HEADER, i32::from(IP) + IPV6_HEADER);
    for position in 0..EXTENSION_HEADERS {
        let (options, routing, fragment, next) = (a.label(), a.label(), a.label(), a.label());
        a.jump(code::JUMP_EQUAL_IMM, NEXT, 0, TCP, tcp);
        within(a, SHORTEST_HEADER, pass);
        if position == 0 {
            a.jump(code::JUMP_EQUAL_IMM, NEXT, 0, HOP_BY_HOP, options);
        }
        a.jump(code::JUMP_EQUAL_IMM, NEXT, 0, DESTINATION, options);
        a.jump(code::JUMP_EQUAL_IMM, NEXT, 0, ROUTING, routing);
        a.jump(code::JUMP_EQUAL_IMM, NEXT, 0, FRAGMENT_V6, fragment);
        a.jump(code::JUMP, 0, 0, 0, pass);
        a.place(routing);
        a.load(code::LOAD_U8, SCRATCH, HEADER, 3);
        a.jump(code::JUMP_DIFFERENT_IMM, SCRATCH, 0, 0, pass);
        a.place(options);
        a.load(code::LOAD_U8, NEXT, HEADER, 0);
        a.load(code::LOAD_U8, SCRATCH, HEADER, 1);
        a.immediate(code::SHIFT_LEFT_IMM, SCRATCH, 3);
        a.immediate(code::ADD_IMM, SCRATCH, SHORTEST_HEADER);
        a.put(code::ADD, HEADER, SCRATCH, 0, 0);
        a.jump(code::JUMP, 0, 0, 0, next);
        a.place(fragment);
        a.load(code::LOAD_U16, SCRATCH, HEADER, 2);
        a.immediate(code::TO_HOST, SCRATCH, 16);
        a.jump(code::JUMP_SET_IMM, SCRATCH, 0, 0xfff8, pass);
        a.immediate(code::MOVE_IMM, FRAGMENT, 1);
        a.load(code::LOAD_U8, NEXT, HEADER, 0);
        a.immediate(code::ADD_IMM, HEADER, SHORTEST_HEADER);
        a.place(next);
    }
    let too_long = a.label();
    a.jump(code::JUMP_EQUAL_IMM, NEXT, 0, TCP, tcp);
    for more in [DESTINATION, ROUTING, FRAGMENT_V6] {
        a.jump(code::JUMP_EQUAL_IMM, NEXT, 0, more, too_long);
    }
    a.jump(code::JUMP, 0, 0, 0, pass);
    a.place(too_long);
    a.immediate(code::MOVE_IMM, FRAGMENT, 1);
    let addresses: Vec<_> = rules.iter().map(|rule| Rule { ports: Ports::All, ..*rule }).collect();
    compare_v6(a, &addresses, IP + 24, pass, hit);
}

/// Continues only if the byte at `at` is one of these.
fn one_of(a: &mut Assembler, at: i16, values: &[i32], otherwise: Label) {
    let found = a.label();
    a.load(code::LOAD_U8, SCRATCH, FRAME, at);
    for value in values {
        a.jump(code::JUMP_EQUAL_IMM, SCRATCH, 0, *value, found);
    }
    a.jump(code::JUMP, 0, 0, 0, otherwise);
    a.place(found);
}

/// ICMP type 3 about a segment from one of our addresses and ports: it was too large, or its
/// destination cannot be reached for long. Headers have no options: neither routers nor we send any.
fn message_v4(a: &mut Assembler, rules: &[Rule], pass: Label, hit: Label) {
    const QUOTE: i16 = IP + IPV4_HEADER as i16 + ICMP_HEADER;
    a.jump(code::JUMP_DIFFERENT_IMM, SCRATCH, 0, ICMP, pass);
    must_have(a, i32::from(QUOTE) + IPV4_HEADER + QUOTED, pass);
    one_of(a, QUOTE - ICMP_HEADER + 1, &MESSAGES, pass);
    for (at, value) in [(IP, 0x45), (QUOTE - ICMP_HEADER, 3), (QUOTE, 0x45), (QUOTE + 9, TCP)] {
        a.load(code::LOAD_U8, SCRATCH, FRAME, at);
        a.jump(code::JUMP_DIFFERENT_IMM, SCRATCH, 0, value, pass);
    }
    // The kernel reassembles a fragmented message.
    a.load(code::LOAD_U16, SCRATCH, FRAME, IP + 6);
    a.immediate(code::TO_HOST, SCRATCH, 16);
    a.jump(code::JUMP_SET_IMM, SCRATCH, 0, 0x3fff, pass);
    a.load(code::LOAD_U16, PORT, FRAME, QUOTE + IPV4_HEADER as i16);
    a.immediate(code::TO_HOST, PORT, 16);
    compare_v4(a, rules, QUOTE + 12, pass, hit);
}

/// The same for ICMPv6: type 2, and two codes of type 1.
fn message_v6(a: &mut Assembler, rules: &[Rule], pass: Label, hit: Label) {
    const QUOTE: i16 = IP + IPV6_HEADER as i16 + ICMP_HEADER;
    a.jump(code::JUMP_DIFFERENT_IMM, SCRATCH, 0, ICMPV6, pass);
    must_have(a, i32::from(QUOTE) + IPV6_HEADER + QUOTED, pass);
    let known = a.label();
    a.load(code::LOAD_U8, SCRATCH, FRAME, QUOTE - ICMP_HEADER);
    a.jump(code::JUMP_EQUAL_IMM, SCRATCH, 0, 2, known);
    a.jump(code::JUMP_DIFFERENT_IMM, SCRATCH, 0, 1, pass);
    one_of(a, QUOTE - ICMP_HEADER + 1, &MESSAGES_V6, pass);
    a.place(known);
    one_of(a, QUOTE + 6, &[TCP], pass);
    a.load(code::LOAD_U16, PORT, FRAME, QUOTE + IPV6_HEADER as i16);
    a.immediate(code::TO_HOST, PORT, 16);
    compare_v6(a, rules, QUOTE + 8, pass, hit);
}

/// Matches if a rule has the address at `at` and the port in its register.
fn compare_v4(a: &mut Assembler, rules: &[Rule], at: i16, pass: Label, hit: Label) {
    for rule in rules {
        let IpAddr::V4(address) = rule.address else { continue };
        let next = a.label();
        a.load(code::LOAD_U32, SCRATCH, FRAME, at);
        a.jump(code::JUMP_DIFFERENT_IMM32, SCRATCH, 0, i32::from_ne_bytes(address.octets()), next);
        port(a, rule.ports, hit);
        a.place(next);
    }
    a.jump(code::JUMP, 0, 0, 0, pass);
}

fn compare_v6(a: &mut Assembler, rules: &[Rule], at: i16, pass: Label, hit: Label) {
    for rule in rules {
        let IpAddr::V6(address) = rule.address else { continue };
        let next = a.label();
        let octets = address.octets();
        for (i, word) in (0i16..).zip(octets.as_chunks::<4>().0) {
            a.load(code::LOAD_U32, SCRATCH, FRAME, at + 4 * i);
            a.jump(code::JUMP_DIFFERENT_IMM32, SCRATCH, 0, i32::from_ne_bytes(*word), next);
        }
        port(a, rule.ports, hit);
        a.place(next);
    }
    a.jump(code::JUMP, 0, 0, 0, pass);
}

fn port(a: &mut Assembler, ports: Ports, hit: Label) {
    match ports {
        Ports::All => a.jump(code::JUMP, 0, 0, 0, hit),
        Ports::Only(port) => a.jump(code::JUMP_EQUAL_IMM, PORT, 0, i32::from(port), hit),
    }
}
