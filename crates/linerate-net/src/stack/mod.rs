//! TCP in user space: packets in, packets and bytes out; no I/O, no clock, no `unsafe`. RFC 9293.
