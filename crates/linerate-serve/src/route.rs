//! Route patterns, by which metrics distinguish requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::ROUTE_NAMES;

/// The pattern of a route, such as `/users/{id}`: a label of the metrics. Never a path as clients send it: there is no end of those.
///
/// Give it to a response by [`Response::with_route`](crate::Response::with_route). Behind [`tower`](crate::tower()) it is an extension
/// of the response; in axum a layer makes one of each pattern that matches:
///
/// ```
/// use axum::extract::{MatchedPath, Request};
/// use axum::middleware::{Next, from_fn};
/// use axum::response::Response;
/// use axum::{Router, routing::get};
/// use linerate_serve::{Route, tower};
///
/// async fn label(matched: MatchedPath, request: Request, next: Next) -> Response {
///     let mut response = next.run(request).await;
///     response.extensions_mut().insert(Route::new(matched.as_str()));
///     response
/// }
///
/// let app: Router = Router::new().route("/users/{id}", get(|| async { "a user\n" })).route_layer(from_fn(label));
/// let handler = tower(app.with_state(()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Route(pub(crate) u16);

/// All names, and their numbers.
#[derive(Default)]
struct Names {
    by_number: Vec<Arc<str>>,
    by_name: HashMap<Arc<str>, u16>,
}

static NAMES: Mutex<Option<Names>> = Mutex::new(None);

/// The route of responses that were given none.
const OTHER: &str = "other";

thread_local! {
    /// The names that this thread has used, found without a lock.
    static KNOWN: RefCell<HashMap<Arc<str>, u16>> = RefCell::default();
}

impl Route {
    /// The route of this pattern. A process can have 1023; further ones become `other`.
    pub fn new(pattern: &str) -> Route {
        if let Some(number) = KNOWN.with_borrow(|known| known.get(pattern).copied()) {
            return Route(number);
        }
        let (name, number) = with_names(|names| names.number(pattern));
        if number != 0 {
            KNOWN.with_borrow_mut(|known| known.insert(name, number));
        }
        Route(number)
    }

    /// The pattern.
    pub fn pattern(self) -> Arc<str> {
        with_names(|names| names.by_number.get(usize::from(self.0)).cloned()).unwrap_or_else(|| OTHER.into())
    }
}

fn with_names<T>(look: impl FnOnce(&mut Names) -> T) -> T {
    look(NAMES.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

impl Names {
    fn number(&mut self, pattern: &str) -> (Arc<str>, u16) {
        if self.by_number.is_empty() {
            self.add(OTHER);
        }
        if let Some((name, number)) = self.by_name.get_key_value(pattern) {
            return (Arc::clone(name), *number);
        }
        if self.by_number.len() >= ROUTE_NAMES {
            return (Arc::clone(&self.by_number[0]), 0);
        }
        self.add(pattern)
    }

    fn add(&mut self, pattern: &str) -> (Arc<str>, u16) {
        let (name, number): (Arc<str>, _) = (pattern.into(), self.by_number.len() as u16);
        self.by_number.push(Arc::clone(&name));
        self.by_name.insert(Arc::clone(&name), number);
        (name, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_one_route_on_all_threads() {
        let here = Route::new("/users/{id}");
        let there = std::thread::spawn(|| Route::new("/users/{id}")).join().expect("no panic");
        assert_eq!(here, there);
        assert_ne!(here, Route::new("/users"));
        assert_eq!((&*here.pattern(), &*Route::default().pattern()), ("/users/{id}", "other"));
        assert_eq!(Route::new("other"), Route::default());
    }

    #[test]
    fn names_without_end_are_one() {
        let mut names = Names::default();
        let numbers: Vec<u16> = (0..2000).map(|n| names.number(&format!("/{n}")).1).collect();
        assert_eq!(numbers.iter().filter(|n| **n > 0).count(), ROUTE_NAMES - 1);
        assert_eq!((numbers[0], numbers[1999], names.number("/0").1), (1, 0, 1));
    }
}
