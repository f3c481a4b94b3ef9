//! Prints the library's events as lines on standard error.

use std::fmt::{self, Write};
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Prints events of the server; other crates' are their own.
struct Printer;

/// From now on the library's events are printed.
pub(super) fn print() {
    // This fails only if a subscriber is already set, and then that one gets the events.
    let _ = tracing::subscriber::set_global_default(Printer);
}

impl Subscriber for Printer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
            && metadata.is_event()
            && metadata.target().starts_with("linerate_serve")
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        say(&format!("linerate serve: {}", message.0));
    }

    // There are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The text of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to memory does not fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

/// A line on standard error. The server keeps serving if it cannot be written.
pub(super) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
