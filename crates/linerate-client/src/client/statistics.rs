//! Counters of a client.

/// Counts of a client since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Calls handed over.
    pub calls: u64,
    /// Of them, those that wait for a connection now.
    pub waiting: u64,
    /// Responses that their callers got.
    pub responses: u64,
    /// Responses read whose callers no longer waited.
    pub discarded: u64,
    /// Calls that their callers gave up.
    pub cancelled: u64,
    /// Requests sent again.
    pub resent: u64,
    /// Times a slow response held up others behind it on its connection. New requests avoided that connection.
    pub head_of_line: u64,
    /// Responses whose tag named a later request than the oldest (RFC 9112 section 9.3.2 forbids that).
    pub out_of_order: u64,
    /// Responses without a request.
    pub unsolicited: u64,
    /// Responses on connections that then had more responses than requests, since those were idle: some may have gone
    /// to the wrong call. Each such connection is an event at level WARN too.
    pub doubtful: u64,
    /// Connections established.
    pub connected: u64,
    /// Connections that could not be established.
    pub connect_failures: u64,
    /// Connections lost after they were established.
    pub lost: u64,
    /// Connections closed because they had carried as many requests as the server takes.
    pub retired: u64,
    /// Connections closed because the response to an abandoned call was too large.
    pub given_up: u64,
    /// How many requests the server takes on a connection before it closes it, if the client has learnt that.
    pub learnt_limit: Option<u32>,
    /// The connections of now.
    pub pipes: Vec<PipeStatistics>,
}

/// Counts of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PipeStatistics {
    /// Whether it is established.
    pub established: bool,
    /// Requests in flight.
    pub in_flight: u32,
    /// Requests sent.
    pub requests: u64,
    /// Responses read.
    pub responses: u64,
    /// Whether the response at its head is slow.
    pub slow: bool,
}
