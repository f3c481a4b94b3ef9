//! A table of routes by prefix, which precedes a site's other content: directories, redirects,
//! plain statuses.

use std::fmt;

use crate::content::extra_fields::ExtraFields;
use crate::content::files::{FileRoot, Files, file_name};
use crate::content::users::Users;
use crate::{NetworkAccess, Request, Response, Route, RouteLimits};

/// Rules of a table, at most. Reason: they are tried in sequence, and a longer table should be a
/// handler.
const RULES: usize = 256;

/// One route: everything at and beneath a prefix of the path.
#[derive(Clone, Debug)]
pub struct Rule {
    prefix: String,
    /// The prefix ends in a slash, so it means a directory.
    open: bool,
    action: Action,
    /// The route that metrics count its responses under.
    route: Route,
    fields: ExtraFields,
    users: Option<Users>,
    access: NetworkAccess,
    limits: RouteLimits,
}

/// The action for requests of a route.
#[derive(Clone, Debug)]
pub enum Action {
    /// Serve files of this directory; the rest of the path is their name.
    Dir(FileRoot),
    /// Redirect to another address, with status 301, 302, 303, 307 or 308. If prefix and address
    /// both end in a slash, the rest of the path and the query are appended.
    Redirect {
        /// An absolute URL, or a path.
        to: String,
        /// The status.
        status: u16,
    },
    /// Respond with only a status, 200 to 599.
    Status(u16),
    /// Respond as the site does without this rule, which only says who may ask and how.
    Site,
}

/// Why a rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    /// The prefix is not a path.
    #[error(
        "a prefix is the beginning of a path as it is once decoded, such as /static/: with a slash in front, and without empty segments, .. and hidden names"
    )]
    Prefix,
    /// The status is not one of a redirect.
    #[error("a redirect has the status 301, 302, 303, 307 or 308")]
    RedirectStatus,
    /// The status is out of range.
    #[error("a status is a number from 200 to 599")]
    Status,
    /// The target of a redirect is invalid.
    #[error(
        "a redirect goes to a path that begins with one slash, or to a URL that begins with http:// or https://, without spaces"
    )]
    Target,
}

impl Rule {
    /// A rule for `prefix` and everything beneath it: `/old` matches `/old` and `/old/a`, not
    /// `/older`.
    ///
    /// # Errors
    /// [`BadRule`] if prefix, target or status is invalid.
    pub fn new(prefix: &str, action: Action) -> Result<Rule, BadRule> {
        let name = prefix.strip_prefix('/').ok_or(BadRule::Prefix)?;
        let plain = name.strip_suffix('/').unwrap_or(name);
        // Normalized like the paths of requests, so that no other spelling of a path bypasses it.
        let literal = plain.replace('%', "%25");
        if name == "/"
            || plain.contains(['?', '#'])
            || file_name(&literal).ok().as_deref() != Some(plain.as_bytes())
        {
            return Err(BadRule::Prefix);
        }
        match &action {
            Action::Dir(_) | Action::Site => {}
            Action::Status(status) if (200..=599).contains(status) => {}
            Action::Status(_) => return Err(BadRule::Status),
            Action::Redirect { status, .. } if !matches!(status, 301 | 302 | 303 | 307 | 308) => {
                return Err(BadRule::RedirectStatus);
            }
            Action::Redirect { to, .. } => {
                let place = to.starts_with('/') && !to.starts_with("//");
                let url = ["http://", "https://"].iter().any(|s| to.len() > s.len() && to.starts_with(s));
                if !(place || url) || !to.bytes().all(|b| b.is_ascii_graphic()) {
                    return Err(BadRule::Target);
                }
            }
        }
        // The configuration limits their number, whatever clients request.
        let route = Route::new(&format!("{prefix}*"));
        let (prefix, open) = (plain.to_owned(), prefix.ends_with('/'));
        let (fields, access, limits) = Default::default();
        Ok(Rule { prefix, open, action, route, fields, users: None, access, limits })
    }

    /// Restricts it to clients of some networks, in addition to the server's restrictions.
    #[must_use]
    pub fn with_access(self, access: NetworkAccess) -> Rule {
        Rule { access, ..self }
    }

    /// Sets limits in place of the server's.
    #[must_use]
    pub fn with_limits(self, limits: RouteLimits) -> Rule {
        Rule { limits, ..self }
    }

    /// Adds fields to its responses, in addition to the site's.
    #[must_use]
    pub fn with_fields(self, fields: ExtraFields) -> Rule {
        Rule { fields, ..self }
    }

    /// Restricts it to these users, in place of the site's.
    #[must_use]
    pub fn with_users(self, users: Option<Users>) -> Rule {
        Rule { users, ..self }
    }

    /// The rest of a decoded name after the prefix, if it matches.
    fn rest<'n>(&self, name: &'n [u8]) -> Option<&'n [u8]> {
        let rest = name.strip_prefix(self.prefix.as_bytes())?;
        if self.prefix.is_empty() {
            return Some(rest);
        }
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
    }
}

/// Rules, of which the longest matching prefix wins.
///
/// ```
/// use linerate_serve::{Action, Content, RouteTable, Rule};
///
/// let moved = Action::Redirect { to: "/new/".to_owned(), status: 308 };
/// let table = RouteTable::new(vec![
///     Rule::new("/old/", moved)?,
///     Rule::new("/private", Action::Status(404))?,
/// ])?;
/// let content = Content { table, ..Content::default() };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    rules: Vec<Rule>,
}

/// Why a table is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTable {
    /// Two rules have the same prefix.
    #[error("two routes are for the same prefix")]
    Twice(usize),
    /// There are too many rules.
    #[error("more than {RULES} routes")]
    TooMany,
}

impl RouteTable {
    /// # Errors
    /// [`BadTable`] if a prefix occurs twice (with the index of the second), or there are too many
    /// rules.
    pub fn new(mut rules: Vec<Rule>) -> Result<RouteTable, BadTable> {
        if rules.len() > RULES {
            return Err(BadTable::TooMany);
        }
        for (i, rule) in rules.iter().enumerate() {
            if rules[..i].iter().any(|other| other.prefix == rule.prefix) {
                return Err(BadTable::Twice(i));
            }
        }
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.prefix.len()));
        Ok(RouteTable { rules })
    }

    /// The table of one thread; `None` if there are no rules.
    pub(crate) fn own(&self) -> Option<OwnTable> {
        let own = |rule: &Rule| {
            let files = if let Action::Dir(root) = &rule.action { Some(root.files()) } else { None };
            (rule.clone(), files)
        };
        (!self.rules.is_empty()).then(|| OwnTable(self.rules.iter().map(own).collect()))
    }
}

/// One thread's table, with its files.
pub(crate) struct OwnTable(Vec<(Rule, Option<Files>)>);

impl fmt::Debug for OwnTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} routes", self.0.len())
    }
}

/// The result of the matching rule.
pub(crate) struct Routed {
    pub(crate) what: What,
    /// Additional fields of its responses; those in front prevail.
    pub(crate) fields: Vec<ExtraFields>,
    pub(crate) route: Route,
    pub(crate) users: Option<Users>,
    /// Its client may ask.
    pub(crate) admits: bool,
}

/// How to respond.
pub(crate) enum What {
    /// With this response.
    Answer(Response),
    /// With the file of this name.
    File(Files, Vec<u8>),
    /// As if there were no rule.
    Site,
}

impl OwnTable {
    /// Whether a rule has limits of its own.
    pub(crate) fn has_limits(&self) -> bool {
        self.0.iter().any(|(rule, _)| rule.limits != RouteLimits::default())
    }

    /// The rules for a decoded name, the longest first, up to one that says what is there. Those before
    /// it say more of that.
    fn of<'t>(&'t self, name: &'t [u8]) -> impl Iterator<Item = (&'t Rule, Option<&'t Files>, &'t [u8])> {
        let mut over = false;
        self.0.iter().filter_map(move |(rule, files)| {
            let rest = rule.rest(name).filter(|_| !over)?;
            over = !matches!(rule.action, Action::Site);
            Some((rule, files.as_ref(), rest))
        })
    }

    /// The limits for a path.
    pub(crate) fn limits(&self, path: &str) -> RouteLimits {
        let Ok(name) = file_name(path) else { return RouteLimits::default() };
        self.of(&name).fold(RouteLimits::default(), |all, (rule, ..)| all.or(rule.limits))
    }

    /// What the matching rules say.
    pub(crate) fn route(&self, request: &Request) -> Option<Routed> {
        // A path that cannot be decoded matches no rule, file or route.
        let name = file_name(request.path()).ok()?;
        let mut routed: Option<Routed> = None;
        for (rule, files, rest) in self.of(&name) {
            let what = match (&rule.action, files) {
                (Action::Dir(_), Some(files)) => What::File(files.clone(), rest.to_owned()),
                (Action::Redirect { to, status }, _) => What::Answer(redirect(rule, to, *status, request)),
                (Action::Status(status), _) => What::Answer(plain(*status)),
                (Action::Site, _) => What::Site,
                (Action::Dir(_), None) => What::Answer(plain(404)),
            };
            let all = match &mut routed {
                Some(all) => {
                    all.what = what;
                    all
                }
                first => {
                    let (fields, route) = (Vec::new(), rule.route);
                    first.insert(Routed { what, fields, route, users: None, admits: true })
                }
            };
            all.admits &= rule.access.admits_peer(request.peer());
            all.users = all.users.take().or_else(|| rule.users.clone());
            all.fields.extend((!rule.fields.is_empty()).then(|| rule.fields.clone()));
        }
        routed
    }
}

fn plain(status: u16) -> Response {
    match status {
        204 | 304 => Response::status(status),
        _ => Response::explained(status, "as this server is configured"),
    }
}

fn redirect(rule: &Rule, to: &str, status: u16, request: &Request) -> Response {
    let mut place = to.to_owned();
    if rule.open && to.ends_with('/') {
        // From the path as requested, still encoded: drops as many segments as the prefix has.
        let depth = rule.prefix.split('/').filter(|s| !s.is_empty()).count();
        let segments = request.path().split('/').filter(|s| !s.is_empty() && *s != ".");
        let rest: Vec<&str> = segments.skip(depth).collect();
        place += &rest.join("/");
        if !rest.is_empty() && request.path().ends_with('/') {
            place.push('/');
        }
        if let Some(query) = request.query() {
            place.push('?');
            place += query;
        }
    }
    let mut answer = Response::explained(status, "it is elsewhere");
    match answer.fields.add("location", &place) {
        Ok(()) => answer,
        Err(_) => Response::explained(404, "no such place"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_can_be_and_cannot() {
        for prefix in ["/", "/a", "/a/", "/a b/c", "/100%", "/.well-known/x"] {
            assert!(Rule::new(prefix, Action::Status(403)).is_ok(), "{prefix}");
        }
        for prefix in ["", "a", "//", "//a", "/a//", "/a//b", "/../a", "/.git", "/a?b", "/a#b", "/./a"] {
            assert_eq!(Rule::new(prefix, Action::Status(403)).err(), Some(BadRule::Prefix), "{prefix}");
        }
        assert_eq!(Rule::new("/", Action::Status(199)).err(), Some(BadRule::Status));
        let to = |to: &str, status| Rule::new("/a", Action::Redirect { to: to.into(), status }).err();
        assert_eq!(to("/b", 302), None);
        assert_eq!(to("https://example.org/", 308), None);
        assert_eq!(to("/b", 304), Some(BadRule::RedirectStatus));
        for place in ["", "b", "//elsewhere", "ftp://a", "http://", "/a b", "/a\r\nb: c"] {
            assert_eq!(to(place, 302), Some(BadRule::Target), "{place}");
        }
    }

    #[test]
    fn the_longest_prefix_counts_and_ends_at_a_segment() {
        let rule = |prefix| Rule::new(prefix, Action::Status(200)).unwrap();
        let table = RouteTable::new(vec![rule("/"), rule("/a/b/"), rule("/a")]).unwrap();
        let prefixes: Vec<_> = table.rules.iter().map(|r| r.prefix.as_str()).collect();
        assert_eq!(prefixes, ["a/b", "a", ""]);
        let a = &table.rules[1];
        assert_eq!(
            (a.rest(b"a"), a.rest(b"a/x/y"), a.rest(b"ab"), a.rest(b"b")),
            (Some(&b""[..]), Some(&b"x/y"[..]), None, None)
        );
        assert_eq!(table.rules[2].rest(b"x"), Some(&b"x"[..]));
        assert_eq!(RouteTable::new(vec![rule("/a"), rule("/"), rule("/a/")]).err(), Some(BadTable::Twice(2)));
        assert_eq!(RouteTable::new(vec![rule("/a"); RULES + 1]).err(), Some(BadTable::TooMany));
    }
}
