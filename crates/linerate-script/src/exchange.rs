//! A request of a script, with the redirects that it follows.

use std::cell::RefCell;
use std::rc::Rc;

use linerate_base::Time;

use crate::action::{UserRequest, UserResponse};
use crate::jar::{ScriptJar, SetCookieField};

/// The jars of a user. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct UserJars(pub(crate) Rc<RefCell<Vec<ScriptJar>>>);

/// What a redirect may change.
type FirstRequest = (String, Vec<(String, String)>, Vec<u8>);

/// A request on its way, over all its redirects.
#[derive(Debug)]
pub struct ScriptExchange {
    request: UserRequest,
    jars: UserJars,
    left: u32,
    /// Cookies of the request itself are for its own host.
    host: Option<String>,
    /// Method, fields and body as the script gave them, once a redirect has changed them.
    first: Option<FirstRequest>,
}

/// What follows from a response.
#[derive(Debug)]
pub enum ExchangeStep {
    /// Another request is to be sent: [`ScriptExchange::request`].
    Follow,
    /// It is the last one.
    Ended(UserResponse),
}

impl ScriptExchange {
    /// Begins one.
    pub fn new(request: UserRequest, jars: UserJars) -> ScriptExchange {
        let (left, host) = (request.redirects, request.url.host_str().map(str::to_owned));
        ScriptExchange { request, jars, left, host, first: None }
    }

    /// The request that is to be sent now.
    pub fn request(&self) -> &UserRequest {
        &self.request
    }

    /// Ends it: the request as the script made it, with the URL of the last redirect.
    pub fn into_request(self) -> UserRequest {
        match self.first {
            None => self.request,
            Some((method, headers, body)) => UserRequest { method, headers, body, ..self.request },
        }
    }

    /// The value of Cookie for it; `None`: it has no cookies.
    pub fn cookie(&self, now: Time) -> Option<String> {
        let jars = self.jars.0.borrow();
        let jar = jars.get(self.request.jar as usize);
        let mut all = jar.map_or(Vec::new(), |jar| jar.cookies(&self.request.url, now));
        if self.request.url.host_str() == self.host.as_deref() {
            // As k6 has it: those of the request come first.
            let own = &self.request.cookies;
            all.retain(|(name, _)| !own.iter().any(|(own, _, replaces)| own == name && *replaces));
            all.splice(0..0, own.iter().map(|(name, value, _)| (name.clone(), value.clone())));
        }
        let pairs: Vec<_> = all.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }

    /// Takes the response to it: its cookies are stored, and a redirect is followed (RFC 9110 section 15.4).
    pub fn take(&mut self, mut response: UserResponse, now: Time) -> ExchangeStep {
        self.store_cookies(&response, now);
        let location = response.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("location"));
        let is_redirect =
            matches!(response.status, 301 | 302 | 303 | 307 | 308) && self.request.redirects > 0;
        let Some((_, location)) = location.filter(|_| is_redirect) else {
            return ExchangeStep::Ended(response);
        };
        if self.left == 0 {
            return ExchangeStep::Ended(response);
        }
        let target = match self.request.url.join(location) {
            Ok(target) if ["http", "https"].contains(&target.scheme()) => target,
            _ => {
                (response.error, response.error_code) =
                    (format!("the redirect to {location:?} leads nowhere"), 1000);
                return ExchangeStep::Ended(response);
            }
        };
        self.left -= 1;
        self.follow(response.status, target);
        ExchangeStep::Follow
    }

    fn store_cookies(&self, response: &UserResponse, now: Time) {
        let mut jars = self.jars.0.borrow_mut();
        let Some(jar) = jars.get_mut(self.request.jar as usize) else { return };
        for (name, value) in &response.headers {
            if name.eq_ignore_ascii_case("set-cookie")
                && let Some(cookie) = SetCookieField::parse(value)
            {
                jar.store(&cookie, &self.request.url, now);
            }
        }
    }

    fn follow(&mut self, status: u16, mut target: url::Url) {
        let request = &mut self.request;
        self.first
            .get_or_insert_with(|| (request.method.clone(), request.headers.clone(), request.body.clone()));
        if target.fragment().is_some() {
            target.set_fragment(None);
        }
        if matches!(status, 301..=303) {
            if request.method != "HEAD" {
                "GET".clone_into(&mut request.method);
            }
            request.body.clear();
            request.headers.retain(|(name, _)| !name.to_ascii_lowercase().starts_with("content-"));
        }
        if target.host_str() != request.url.host_str() {
            let secret = ["authorization", "cookie", "www-authenticate", "proxy-authorization", "host"];
            request.headers.retain(|(name, _)| !secret.contains(&name.to_ascii_lowercase().as_str()));
        }
        request.url = target;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::ResponseKind;

    fn exchange(redirects: u32) -> ScriptExchange {
        let jars = UserJars::default();
        jars.0.borrow_mut().push(ScriptJar::default());
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let request = UserRequest {
            method: "POST".to_owned(),
            url: "http://one.test/login".parse().unwrap(),
            headers: vec![
                pair("Authorization", "secret"),
                pair("Content-Type", "text/plain"),
                pair("X", "1"),
            ],
            body: b"body".to_vec(),
            timeout: std::time::Duration::from_secs(60),
            redirects,
            tags: Default::default(),
            expected: None,
            response: ResponseKind::Text,
            cookies: vec![("own".to_owned(), "1".to_owned(), false)],
            jar: 0,
        };
        ScriptExchange::new(request, jars)
    }

    fn moved(status: u16, to: &str) -> UserResponse {
        let headers =
            vec![("Location".to_owned(), to.to_owned()), ("Set-Cookie".to_owned(), "s=1; Path=/".to_owned())];
        UserResponse { status, headers, ..UserResponse::default() }
    }

    #[test]
    fn a_redirect_after_a_login_is_a_get_with_its_cookie() {
        let mut exchange = exchange(2);
        assert!(matches!(exchange.take(moved(302, "/home#top"), Time::ZERO), ExchangeStep::Follow));
        let request = exchange.request();
        assert_eq!((request.method.as_str(), request.url.as_str()), ("GET", "http://one.test/home"));
        assert!(request.body.is_empty() && request.headers.len() == 2);
        assert_eq!(exchange.cookie(Time::ZERO).as_deref(), Some("own=1; s=1"));
        // Another host gets neither cookies nor credentials.
        assert!(matches!(exchange.take(moved(307, "https://two.test/"), Time::ZERO), ExchangeStep::Follow));
        assert_eq!((exchange.request().headers.len(), exchange.cookie(Time::ZERO)), (1, None));
        assert!(matches!(exchange.take(moved(302, "/more"), Time::ZERO), ExchangeStep::Ended(_)));
    }

    #[test]
    fn a_redirect_that_keeps_its_method_keeps_its_body() {
        let mut exchange = exchange(1);
        exchange.take(moved(308, "there"), Time::ZERO);
        let request = exchange.request();
        assert_eq!((request.method.as_str(), request.body.as_slice()), ("POST", b"body".as_slice()));
        assert_eq!(request.url.path(), "/there");
    }
}
