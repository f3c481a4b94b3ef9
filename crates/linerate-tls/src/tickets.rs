//! The keys of session tickets.

use std::sync::Arc;
use std::time::Duration;

use rustls::TicketRotator;
use rustls::crypto::GetRandomFailed;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::ProducesTickets;

use crate::limits::TICKET_KEY_LIFE;
use crate::pem::TlsError;

/// Keys that encrypt tickets for this long, and decrypt them for as long again.
pub(crate) fn rotating(life: Duration) -> Result<Arc<dyn ProducesTickets>, TlsError> {
    let unfit = |error: rustls::Error| TlsError::Options(error.to_string());
    if life == TICKET_KEY_LIFE {
        return Ticketer::new().map_err(unfit);
    }
    match u32::try_from(life.as_secs()) {
        Ok(seconds @ 1..) if life < TICKET_KEY_LIFE => {
            Ok(Arc::new(TicketRotator::new(seconds, key).map_err(unfit)?))
        }
        _ => Err(TlsError::Options(format!(
            "ticket_key_life is {life:?}\nhint: write a time from 1 s to {} h",
            TICKET_KEY_LIFE.as_secs() / 3600
        ))),
    }
}

/// One key: rustls replaces its own keys less often than any that are asked for here.
#[derive(Debug)]
struct TicketKey(Arc<dyn ProducesTickets>);

fn key() -> Result<Box<dyn ProducesTickets>, GetRandomFailed> {
    Ok(Box::new(TicketKey(Ticketer::new().map_err(|_| GetRandomFailed)?)))
}

impl ProducesTickets for TicketKey {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.decrypt(cipher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_that_cannot_be_are_refused() {
        for life in [Duration::ZERO, Duration::from_millis(900), TICKET_KEY_LIFE + Duration::from_secs(1)] {
            let error = rotating(life).expect_err("refused").to_string();
            assert!(error.contains("from 1 s to 6 h"), "{error}");
        }
        for life in [Duration::from_secs(1), TICKET_KEY_LIFE] {
            assert_eq!(rotating(life).expect("keys").lifetime(), 2 * life.as_secs() as u32);
        }
    }

    #[test]
    fn a_ticket_outlives_one_key_and_not_two() {
        let keys = rotating(Duration::from_secs(1)).expect("keys");
        let old = keys.encrypt(b"session").expect("a ticket");
        assert_eq!(keys.decrypt(&old).expect("its key is there"), b"session");
        // Each key goes when it is used next, and the clock has whole seconds.
        let begun = std::time::Instant::now();
        while keys.decrypt(&old).is_some() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is never replaced");
            std::thread::sleep(Duration::from_millis(20));
        }
        let new = keys.encrypt(b"session").expect("a ticket");
        assert_eq!(keys.decrypt(&new).expect("its key is there"), b"session");
    }
}
