//! The options of the library, from those of the command.

use linerate_net::machine;
use linerate_serve::misbehave::MisbehaviourKind as Wrong;
use linerate_serve::{ClientRules, Limits, NetworkAccess, ServerOptions};

use super::ServeArgs;

/// The options for the library.
pub(super) fn options(args: &ServeArgs, threads: usize) -> ServerOptions {
    let mut limits = Limits::default();
    limits.header_time = args.header_timeout.unwrap_or(limits.header_time);
    limits.body_time = args.body_timeout.unwrap_or(limits.body_time);
    limits.idle_time = args.idle_timeout.unwrap_or(limits.idle_time);
    limits.half_close = args.half_close == Some(true);
    limits.write_time = args.write_timeout.unwrap_or(limits.write_time);
    limits.request.body = args.max_body.unwrap_or(limits.request.body);
    limits.request.fields = args.max_fields.unwrap_or(limits.request.fields);
    if let Some(head) = args.max_head {
        limits.request.head = head;
        limits.request.request_line = limits.request.request_line.min(head);
    }
    if let Some(most) = args.max_connections {
        // The threads share nothing: each has its part.
        limits.connections = usize::try_from(most.div_ceil(threads as u64)).unwrap_or(usize::MAX);
    }
    let defaults = ServerOptions::default();
    ServerOptions {
        listen: args.own_addresses(),
        sockets: args.sockets.clone(),
        threads,
        cores: if args.pin == Some(true) { machine::allowed_cores() } else { Vec::new() },
        io: args.io.unwrap_or_default(),
        interface: args.interface.clone(),
        busy_poll: args.busy_poll,
        pcap_out: args.pcap_out.clone(),
        fault: args.fault,
        http2: args.http2 != Some(false),
        http3: args.http3 == Some(true),
        // The only misbehaviour that the fast server does itself.
        close_after: args.misbehave.iter().find_map(|w| match w {
            Wrong::CloseAfter(n) => Some(*n),
            _ => None,
        }),
        defer_accept: args.defer_accept == Some(true),
        share_port: args.share_port == Some(true),
        limits,
        measure: args.metrics.is_some(),
        clients: ClientRules {
            connections: args.max_connections_per_client.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            rate: args.max_rate_per_client,
            trusted: args.trusted_proxy.clone(),
            proxy_protocol: args.proxy_protocol == Some(true),
            access: NetworkAccess { allow: args.allow.clone(), deny: args.deny.clone() },
        },
        drain: args.drain.unwrap_or(defaults.drain),
        ..defaults
    }
}
