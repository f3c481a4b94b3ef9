//! What `linerate serve` serves: files if configured, otherwise the built-in routes.

use std::cell::{Cell, Ref, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use linerate_http::server::{Method, RequestHead};

use crate::content::extra_fields::ExtraFields;
use crate::content::files::{FileRoot, Files};
use crate::content::host_name::{HostName, without_port};
use crate::content::https::{Hsts, redirect};
use crate::content::routes::Routes;
use crate::content::table::{OwnTable, RouteTable, What};
use crate::content::users::{KnownUsers, Users};
use crate::engine::forbidden;
use crate::message::responding::Responding;
use crate::{Address, Request, Response, Route, RouteLimits};

/// The content of a site.
#[derive(Clone, Debug)]
pub struct Content {
    /// The directory whose files have precedence.
    pub root: Option<FileRoot>,
    /// Whether the built-in routes are served too.
    pub routes: bool,
    /// Routes by prefix, which precede both.
    pub table: RouteTable,
    /// Fields of every response. A route adds its own.
    pub fields: ExtraFields,
    /// Files of the directory that are the body of responses with these statuses.
    pub error_pages: Vec<(u16, String)>,
    /// The users that have access. A route may have others.
    pub users: Option<Users>,
    /// Redirects plain HTTP requests to the same URL with `https` and this port.
    pub redirect_to_https: Option<u16>,
    /// The `Strict-Transport-Security` of responses over HTTPS.
    pub hsts: Option<Hsts>,
}

impl Default for Content {
    /// Only the built-in routes.
    fn default() -> Self {
        Content {
            root: None,
            routes: true,
            table: RouteTable::default(),
            fields: ExtraFields::default(),
            error_pages: Vec::new(),
            users: None,
            redirect_to_https: None,
            hsts: None,
        }
    }
}

/// Content by listening address and by requested host.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// For all addresses without content of their own.
    pub usual: Content,
    /// For these addresses: each is a listener's full address, as [`Request::listener`] returns it.
    pub places: Vec<(Address, Content)>,
    /// For host names. Requests for other hosts get the content of their address.
    pub hosts: Vec<Host>,
}

/// A site by the host name of a request.
#[derive(Clone, Debug)]
pub struct Host {
    /// An address in [`Contents::places`], or `None` for all others.
    pub at: Option<Address>,
    /// An exact name precedes one with a wildcard; of those, the longest wins.
    pub names: Vec<HostName>,
    /// The site's content.
    pub content: Content,
}

impl From<Content> for Contents {
    fn from(usual: Content) -> Contents {
        Contents { usual, places: Vec::new(), hosts: Vec::new() }
    }
}

/// The content that all threads of a site share; it can be replaced while they run.
#[derive(Clone, Debug, Default)]
pub struct SharedContent(Arc<SharedSite>);

#[derive(Debug, Default)]
struct SharedSite {
    contents: Mutex<Contents>,
    version: AtomicU64,
}

impl SharedContent {
    /// Begins with this content.
    pub fn new(content: impl Into<Contents>) -> SharedContent {
        SharedContent(Arc::new(SharedSite {
            contents: Mutex::new(content.into()),
            version: AtomicU64::new(0),
        }))
    }

    /// Uses this content for requests from now on.
    pub fn replace(&self, content: impl Into<Contents>) {
        *self.0.contents.lock().unwrap_or_else(PoisonError::into_inner) = content.into();
        self.0.version.fetch_add(1, Ordering::Release);
    }

    fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// The current content.
    pub fn get(&self) -> Contents {
        self.0.contents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Files and built-in routes together. It can be sent to the threads, which each make a [`Site`] of
/// it.
#[derive(Clone)]
pub struct SitePlan {
    routes: Routes,
    content: SharedContent,
}

impl SitePlan {
    /// `content` includes the files.
    pub fn new(routes: Routes, content: SharedContent) -> SitePlan {
        SitePlan { routes, content }
    }

    /// The site of one thread.
    pub fn site(&self) -> Site {
        let version = self.content.version();
        let pages = SiteView::new(&self.content.get());
        let (plan, version, pages) = (self.clone(), Cell::new(version), RefCell::new(pages));
        let files_route = Route::new("/*");
        Site(Rc::new(Own { plan, version, pages, files_route, known: KnownUsers::default() }))
    }
}

/// The state of one thread.
#[derive(Clone)]
pub struct Site(Rc<Own>);

struct Own {
    plan: SitePlan,
    version: Cell<u64>,
    pages: RefCell<SiteView>,
    /// The route that metrics count the directory's files under.
    files_route: Route,
    known: KnownUsers,
}

/// One thread's view of the contents.
struct SiteView {
    /// A route of some page has limits of its own.
    has_limits: bool,
    usual: Rc<ContentView>,
    places: Vec<(Address, Rc<ContentView>)>,
    hosts: Vec<(Option<Address>, Vec<HostName>, Rc<ContentView>)>,
}

impl SiteView {
    fn new(contents: &Contents) -> SiteView {
        let page = |content| Rc::new(ContentView::new(content));
        let places = contents.places.iter().map(|(at, content)| (at.clone(), page(content)));
        let hosts = contents.hosts.iter();
        let hosts = hosts.map(|host| (host.at.clone(), host.names.clone(), page(&host.content)));
        let (usual, places, hosts) =
            (page(&contents.usual), places.collect::<Vec<_>>(), hosts.collect::<Vec<_>>());
        let all =
            places.iter().map(|(_, page)| page).chain(hosts.iter().map(|(.., page)| page)).chain([&usual]);
        let has_limits = all.filter_map(|page| page.table.as_ref()).any(OwnTable::has_limits);
        SiteView { has_limits, usual, places, hosts }
    }

    /// The page for this request.
    fn of(&self, head: &RequestHead, listener: Option<&Address>) -> &Rc<ContentView> {
        let place = self.places.iter().find(|(at, _)| Some(at) == listener);
        let usual = place.map_or(&self.usual, |(_, page)| page);
        if self.hosts.is_empty() {
            return usual;
        }
        let Some(host) = head.host().map(without_port) else { return usual };
        let place = place.map(|(at, _)| at);
        let here = self.hosts.iter().filter(|(at, ..)| at.as_ref() == place);
        let fit = |names: &[HostName]| names.iter().filter_map(|name| name.fit(host)).max();
        let fitting = here.filter_map(|(_, names, page)| Some((fit(names)?, page)));
        fitting.max_by_key(|(fit, _)| *fit).map_or(usual, |(_, page)| page)
    }
}

/// One thread's view of one content.
struct ContentView {
    files: Option<Files>,
    routes: bool,
    table: Option<OwnTable>,
    fields: ExtraFields,
    error_pages: Vec<(u16, String)>,
    users: Option<Users>,
    redirect_to_https: Option<u16>,
    hsts: Option<Hsts>,
    /// The built-in routes respond to every request, and nothing is added.
    only_routes: bool,
}

impl ContentView {
    fn new(content: &Content) -> ContentView {
        let table = content.table.own();
        let only_routes = content.routes
            && content.root.is_none()
            && table.is_none()
            && content.fields.is_empty()
            && content.users.is_none()
            && content.redirect_to_https.is_none()
            && content.hsts.is_none();
        ContentView {
            only_routes,
            files: content.root.as_ref().map(FileRoot::files),
            routes: content.routes,
            table,
            fields: content.fields.clone(),
            error_pages: content.error_pages.clone(),
            users: content.users.clone(),
            redirect_to_https: content.redirect_to_https,
            hsts: content.hsts.clone(),
        }
    }
}

impl Site {
    /// The current pages.
    fn pages(&self) -> Ref<'_, SiteView> {
        let (own, shared) = (&self.0, &self.0.plan.content);
        let version = shared.version();
        if own.version.get() != version {
            own.version.set(version);
            own.pages.replace(SiteView::new(&shared.get()));
        }
        own.pages.borrow()
    }

    /// Responds to a request.
    pub fn answer(&self, request: Request) -> impl Future<Output = Response> + use<> {
        self.respond(request)
    }

    /// The limits of a request's route.
    pub(crate) fn limits(&self, head: &RequestHead, listener: Option<&Address>) -> RouteLimits {
        let pages = self.pages();
        if !pages.has_limits {
            return RouteLimits::default();
        }
        let table = pages.of(head, listener).table.as_ref();
        table.map(|table| table.limits(head.path())).unwrap_or_default()
    }

    pub(crate) fn respond(&self, request: Request) -> Responding {
        let page = Rc::clone(self.pages().of(request.head(), request.listener()));
        if page.only_routes {
            return self.0.plan.routes.respond(request);
        }
        Responding::decides(self.clone().of_page(page, request))
    }

    async fn of_page(self, page: Rc<ContentView>, request: Request) -> Responding {
        let is_plain = request.tls().is_none();
        if let Some(port) = page.redirect_to_https.filter(|_| is_plain) {
            return Responding::ready(redirect(&request, port));
        }
        let reads = matches!(request.head().method(), Method::Get | Method::Head);
        let routed = page.table.as_ref().and_then(|table| table.route(&request));
        let fields = routed.as_ref().map(|routed| routed.fields.clone()).unwrap_or_default();
        let route = routed.as_ref().map(|routed| routed.route);
        let users = routed.as_ref().and_then(|routed| routed.users.as_ref()).or(page.users.as_ref());
        let refused = match users {
            _ if routed.as_ref().is_some_and(|routed| !routed.admits) => Some(forbidden()),
            // Boxed, so that the future of every request stays small.
            Some(users) => Box::pin(users.refuse(&self.0.known, &request)).await,
            None => None,
        };
        let (responding, route) = match (refused, routed.map(|routed| routed.what)) {
            (Some(refused), _) => (Responding::ready(refused), route),
            (_, Some(What::Answer(answer))) => (Responding::ready(answer), route),
            (_, Some(What::File(files, name))) => (files.respond_with(&name, request).await, route),
            (_, Some(What::Site) | None) => {
                let (responding, of_site) = self.unrouted(&page, request).await;
                (responding, route.or(of_site))
            }
        };
        let additions = Additions { page, reads, is_plain, route, fields };
        match responding {
            Responding::Ready(Some(response)) => Responding::ready(additions.complete(response).await),
            waits if additions.are_none() => waits,
            waits => Responding::waits(async move { additions.complete(waits.await).await }),
        }
    }

    /// Handles a request that matches no route of the table; the route of its response, if it is not
    /// the response's own.
    async fn unrouted(&self, page: &ContentView, request: Request) -> (Responding, Option<Route>) {
        let reads = matches!(request.head().method(), Method::Get | Method::Head);
        let routes = &self.0.plan.routes;
        if page.files.is_none() && !page.routes {
            return (Responding::ready(Response::explained(404, "nothing is here")), None);
        }
        // Another method on a file's path gets a response that files are read-only.
        let known = Routes::knows(request.path());
        let files = match &page.files {
            Some(files) if reads || !page.routes => files,
            Some(files) if request.path() != "/" && !known && files.has(&request).await => files,
            _ => return (routes.respond(request), None),
        };
        // A file may have the name of a route: the file has precedence, because it was put there.
        if page.routes && request.path() != "/" && known && !files.has(&request).await {
            return (routes.respond(request), None);
        }
        (files.clone().respond(request).await, Some(self.0.files_route))
    }
}

/// What the response to a request gets in addition.
struct Additions {
    page: Rc<ContentView>,
    /// The request is GET or HEAD.
    reads: bool,
    is_plain: bool,
    route: Option<Route>,
    /// The fields of its route; those in front prevail.
    fields: Vec<ExtraFields>,
}

impl Additions {
    /// Whether every response stays as it is.
    fn are_none(&self) -> bool {
        let Additions { page, route, fields, .. } = self;
        page.error_pages.is_empty()
            && route.is_none()
            && page.hsts.is_none()
            && page.fields.is_empty()
            && fields.is_empty()
    }

    async fn complete(self, mut response: Response) -> Response {
        let Additions { page, reads, is_plain, route, fields } = self;
        if response.status >= 400
            && reads
            && let Some((_, name)) = page.error_pages.iter().find(|(status, _)| *status == response.status)
            && let Some(files) = &page.files
        {
            response = Box::pin(files.in_place_of(response, name)).await;
        }
        if let Some(route) = route {
            response = response.with_route(route);
        }
        if let Some(hsts) = page.hsts.as_ref().filter(|_| !is_plain) {
            hsts.apply(&mut response);
        }
        if !page.fields.is_empty() {
            page.fields.apply(&mut response);
        }
        fields.iter().rev().for_each(|fields| fields.apply(&mut response));
        response
    }
}
