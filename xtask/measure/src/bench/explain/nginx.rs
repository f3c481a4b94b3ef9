//! Where servers listen, and nginx's configuration.

/// The port of every server.
pub(crate) const PORT: u16 = 8000;
/// The port of what nginx forwards to.
pub(crate) const BEHIND: u16 = 8001;

/// The port of another one, which writes head and body apart under Nagle's algorithm.
pub(crate) const NAGLE_BEHIND: u16 = 8002;

/// `listen` is what follows that word.
pub(super) fn nginx_conf(listen: &str, lines: &str) -> String {
    format!(
        "daemon off; master_process off; pid nginx.pid;
events {{ worker_connections 1024; }}
http {{
    access_log off; keepalive_requests 1000000; limit_req_zone $binary_remote_addr zone=pace:1m rate=10r/s;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    upstream nagle {{ server 127.0.0.1:{NAGLE_BEHIND}; keepalive 8; }}
    server {{ listen {listen}; {lines} }}
}}
"
    )
}
