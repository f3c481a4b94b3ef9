//! What `linerate serve` answers: files where there are some, the built-in routes else.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use linerate_http::server::Method;

use crate::engine::explained;
use crate::files::{FileRoot, Files};
use crate::routes::Routes;
use crate::table::{OwnTable, RouteTable, Routed};
use crate::{Address, Request, Response, Route};

/// What a site consists of.
#[derive(Clone, Debug)]
pub struct Content {
    /// The directory whose files come first.
    pub root: Option<FileRoot>,
    /// Whether the built-in routes are answered as well.
    pub routes: bool,
    /// Routes by prefix, which come before both.
    pub table: RouteTable,
}

impl Default for Content {
    /// The built-in routes alone.
    fn default() -> Self {
        Content { root: None, routes: true, table: RouteTable::default() }
    }
}

/// Content by the address that a request came by.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Of all addresses that have none of their own.
    pub usual: Content,
    /// Of these: each is a listener's whole address, as [`Request::listener`] says it.
    pub places: Vec<(Address, Content)>,
}

impl From<Content> for Contents {
    fn from(usual: Content) -> Contents {
        Contents { usual, places: Vec::new() }
    }
}

/// The content that all threads of a site answer with; it can be replaced while they run.
#[derive(Clone, Debug, Default)]
pub struct SharedContent(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    contents: Mutex<Contents>,
    version: AtomicU64,
}

impl SharedContent {
    /// This content, until it is replaced.
    pub fn new(content: impl Into<Contents>) -> SharedContent {
        SharedContent(Arc::new(Shared { contents: Mutex::new(content.into()), version: AtomicU64::new(0) }))
    }

    /// Requests from now on are answered with this.
    pub fn replace(&self, content: impl Into<Contents>) {
        *self.0.contents.lock().unwrap_or_else(PoisonError::into_inner) = content.into();
        self.0.version.fetch_add(1, Ordering::Release);
    }

    fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// What it is now.
    pub fn get(&self) -> Contents {
        self.0.contents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Files and built-in routes together; can be sent to the threads that will each make a [`Site`] of it.
#[derive(Clone)]
pub struct SitePlan {
    routes: Routes,
    content: SharedContent,
}

impl SitePlan {
    /// `content`: where the files are.
    pub fn new(routes: Routes, content: SharedContent) -> SitePlan {
        SitePlan { routes, content }
    }

    /// For one thread.
    pub fn site(&self) -> Site {
        let version = self.content.version();
        let pages = Pages::new(&self.content.get());
        let (plan, version, pages) = (self.clone(), Cell::new(version), RefCell::new(pages));
        Site(Rc::new(Own { plan, version, pages, files_route: Route::new("/*") }))
    }
}

/// One thread's.
#[derive(Clone)]
pub struct Site(Rc<Own>);

struct Own {
    plan: SitePlan,
    version: Cell<u64>,
    pages: RefCell<Pages>,
    /// What metrics count files of the directory as.
    files_route: Route,
}

/// One thread's view of the contents.
struct Pages {
    usual: Page,
    places: Vec<(Address, Page)>,
}

impl Pages {
    fn new(contents: &Contents) -> Pages {
        let places = contents.places.iter().map(|(at, content)| (at.clone(), Page::new(content))).collect();
        Pages { usual: Page::new(&contents.usual), places }
    }

    /// What is answered to those who came by this address.
    fn at(&self, listener: Option<&Address>) -> &Page {
        self.places.iter().find(|(at, _)| Some(at) == listener).map_or(&self.usual, |(_, page)| page)
    }
}

/// One thread's view of a content.
#[derive(Clone)]
struct Page {
    files: Option<Files>,
    routes: bool,
    table: Option<Rc<OwnTable>>,
}

impl Page {
    fn new(content: &Content) -> Page {
        Page {
            files: content.root.as_ref().map(FileRoot::files),
            routes: content.routes,
            table: content.table.own(),
        }
    }
}

impl Site {
    /// The files and whether the routes count, as they are now, for this request.
    fn page(&self, request: &Request) -> Page {
        let (own, shared) = (&self.0, &self.0.plan.content);
        let version = shared.version();
        if own.version.get() != version {
            own.version.set(version);
            own.pages.replace(Pages::new(&shared.get()));
        }
        own.pages.borrow().at(request.listener()).clone()
    }

    /// Answers.
    pub async fn answer(self, request: Request) -> Response {
        let page = self.page(&request);
        match page.table.as_ref().and_then(|table| table.route(&request)) {
            Some((Routed::Answer(answer), route)) => return answer.with_route(route),
            Some((Routed::File(files, name), route)) => {
                return files.answer_with(&name, request).await.with_route(route);
            }
            None => {}
        }
        let reads = matches!(request.method(), Method::Get | Method::Head);
        let routes = &self.0.plan.routes;
        if page.files.is_none() && !page.routes {
            return explained(404, "nothing is here");
        }
        // What is sent to a file is told that files are only read.
        let is_file =
            |files: &Files| request.path() != "/" && !Routes::knows(request.path()) && files.has(&request);
        let Some(files) = page.files.filter(|files| reads || !page.routes || is_file(files)) else {
            return routes.answer_shared(request).await;
        };
        // A file's name may be a route's too: the file is what was put there.
        let is_route = page.routes && request.path() != "/" && Routes::knows(request.path());
        if is_route && !files.has(&request) {
            return routes.answer_shared(request).await;
        }
        files.answer(request).await.with_route(self.0.files_route)
    }
}
