//! Where the connections of a baseline's caller go, and what goes over them first.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use linerate_net::{NetError, NetErrorKind, Time};

use super::channel::{Channel, NotOpened};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::route::{Addresses, Names, RouteLayer, RouteTo};
use crate::start::StartError;

/// State that all callers of a run share.
#[derive(Clone)]
pub(super) struct CallersShared {
    addresses: Addresses,
    unix: Option<Arc<Path>>,
    route: Option<RouteTo>,
    layer: Option<Arc<Mutex<RouteLayer>>>,
}

impl CallersShared {
    pub(super) fn of(plan: &Plan, names: Option<Arc<Names>>) -> Result<CallersShared, StartError> {
        let route = RouteTo::of(plan)?;
        Ok(CallersShared {
            addresses: Addresses::new(&plan.target, names),
            unix: plan.route.unix.as_deref().map(Arc::from),
            layer: route.as_ref().map(|route| Arc::new(Mutex::new(route.layer()))),
            route,
        })
    }

    /// Whether each caller needs the stack of a TLS handshake.
    pub(super) fn is_deep(&self) -> bool {
        self.route.is_some()
    }

    /// That of the caller of this number.
    pub(super) fn towards(&self, nth: u64) -> Towards {
        Towards { way: self.clone(), nth, to: None }
    }

    /// Puts into the outcome what became of handshakes.
    pub(super) fn settle(&self, outcome: &mut Outcome) {
        if let (Some(route), Some(layer)) = (&self.route, &self.layer) {
            let counts = layer.lock().unwrap_or_else(PoisonError::into_inner).counts();
            route.settle(&counts, outcome);
        }
    }
}

/// Where the connections of one caller go.
pub(super) struct Towards {
    way: CallersShared,
    nth: u64,
    /// The address of the last attempt.
    to: Option<SocketAddr>,
}

/// A place to connect to.
pub(super) enum ConnectPlace {
    Address(SocketAddr),
    Unix(Arc<Path>),
}

/// Our end of a connection. If no server listens, the kernel may connect a socket to itself: that
/// is no connection to a server.
pub(super) fn own_end(local: Option<SocketAddr>, to: SocketAddr) -> Result<Option<SocketAddr>, NetError> {
    if local == Some(to) { Err(NetError::of(NetErrorKind::Refused)) } else { Ok(local) }
}

impl Towards {
    /// Where the next connection goes, and what its bytes go through.
    pub(super) fn next(&mut self) -> Result<(ConnectPlace, Channel), NetError> {
        let to = self.way.addresses.pick(self.nth);
        self.to = Some(to);
        let session = match &self.way.layer {
            Some(layer) => Some(layer.lock().unwrap_or_else(PoisonError::into_inner).session(to)?),
            None => None,
        };
        let place = match &self.way.unix {
            Some(path) => ConnectPlace::Unix(path.clone()),
            None => ConnectPlace::Address(to),
        };
        Ok((place, Channel::new(session)))
    }

    /// A connection is open.
    pub(super) fn reached(&mut self) {
        self.way.addresses.reached();
    }

    /// None could be opened: the next attempt goes to the next address. The reason names the address if there are several.
    pub(super) fn failed(&mut self, failed: NotOpened, now: Time) -> NotOpened {
        let Some(to) = self.to else { return failed };
        self.way.addresses.failed(to, failed.error.kind, now);
        self.nth += 1;
        if self.way.addresses.are_several() { failed.at(to) } else { failed }
    }
}
