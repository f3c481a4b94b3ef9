//! Requests and responses, with their bodies, as handlers see them.

pub(crate) mod body;
pub(crate) mod file_body;
pub(crate) mod hand_over;
pub(crate) mod http_body;
pub(crate) mod request;
pub(crate) mod request_builder;
pub(crate) mod responding;
pub(crate) mod response;
pub(crate) mod stream;
pub(crate) mod tunnel;
pub(crate) mod unread;
pub(crate) mod upgrade;
pub(crate) mod websocket;
