//! Causes that packets can show, by their stable ids.

/// The server's small write waits for the client's delayed ACK.
pub const SERVER_NAGLE: &str = "server-nagle-delayed-ack";
/// The client's small write waits for the server's delayed ACK.
pub const CLIENT_NAGLE: &str = "client-nagle-delayed-ack";
/// Segments had to be retransmitted.
pub const PACKET_LOSS: &str = "packet-loss";
/// Segments overtook each other on the way.
pub const REORDERING: &str = "reordering";
/// The SYN or the SYN-ACK had to be retransmitted.
pub const SYN_LOSS: &str = "syn-loss";
/// A SYN met what the server still remembers of a connection between the same ports.
pub const TIME_WAIT_COLLISION: &str = "time-wait-collision";
/// Calls waited in the client for a connection of its pool.
pub const CLIENT_POOL: &str = "client-pool";
/// The client did not read its response as fast as it arrived.
pub const CLIENT_SLOW_READER: &str = "client-slow-reader";
/// The server did not read the request as fast as it came.
pub const ZERO_WINDOW: &str = "zero-window";
/// The response ends with its connection, which is closed late.
pub const LATE_CLOSE: &str = "late-close";
/// The server refused connections.
pub const REFUSED: &str = "connection-refused";
/// A connection died: one end retransmitted several times without a reply.
pub const DIED: &str = "connection-died";
/// The server ended the connection before its response was whole.
pub const RESPONSE_CUT: &str = "response-cut";
/// The client waited for 100 Continue.
pub const EXPECT_CONTINUE: &str = "expect-continue";
/// Each call paid for a connection.
pub const NO_KEEP_ALIVE: &str = "no-keep-alive";
/// The server took its time.
pub const SERVER_THINK: &str = "server-think";
/// Responses waited behind earlier ones on their connection.
pub const HEAD_OF_LINE: &str = "head-of-line";
/// The sender of a body over HTTP/2 waits for room in the receiver's window.
pub const H2_FLOW_CONTROL: &str = "h2-flow-control";
/// Requests wait in the client for a stream.
pub const H2_STREAM_LIMIT: &str = "h2-stream-limit";
/// A lost segment holds up other streams of its connection.
pub const H2_HEAD_OF_LINE: &str = "h2-head-of-line";
