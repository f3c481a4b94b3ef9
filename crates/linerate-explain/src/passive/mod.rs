//! HTTP calls seen in packets: what a capture tells of them. Words here are "seen", never "proved".
