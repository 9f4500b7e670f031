//! What a server answered, looked at before the client does. The client takes any document for a listing, and any 404 for
//! "no such object": a login page would be an empty bucket. Here an answer is what was asked for, or an error.

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use reqwest::StatusCode;

use super::listing;

/// A page has 1,000 keys of 1,024 bytes at most, and what XML makes of them.
const DOCUMENT_MAX: usize = 16 * 1024 * 1024;

/// Something answered that is not the server we asked, or not all of it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoAnswer(pub String);

/// The client's own connections, with an eye on the answers.
#[derive(Debug, Default)]
pub(super) struct Wary(ReqwestConnector);

impl HttpConnector for Wary {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Watched(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Watched(HttpClient);

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let asked = Asked::by(&request);
        let answer = self.0.execute(request).await?;
        asked.checked(answer).await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Listing,
    Removal,
    Object,
    /// Its answers have no body.
    Head,
    Other,
}

impl Asked {
    fn by(request: &HttpRequest) -> Self {
        let asks =
            |name: &str| request.uri().query().is_some_and(|query| query.split('&').any(|part| part == name));
        match request.method().as_str() {
            "GET" if asks("list-type=2") => Asked::Listing,
            "GET" => Asked::Object,
            "HEAD" => Asked::Head,
            "POST" if asks("delete") => Asked::Removal,
            _ => Asked::Other,
        }
    }

    async fn checked(self, answer: HttpResponse) -> Result<HttpResponse, HttpError> {
        let status = answer.status();
        match self {
            Asked::Listing | Asked::Removal if status.is_success() => self.document(answer).await,
            Asked::Object if status.is_success() && status != StatusCode::OK => {
                Err(self.instead(&answer, ""))
            }
            Asked::Head => Ok(answer),
            _ if status == StatusCode::NOT_FOUND => self.missing(answer).await,
            _ => Ok(answer),
        }
    }

    /// The document that was asked for. An error in its place is an error, whatever its status says: S3 answers so when
    /// it fails after it began to answer.
    async fn document(self, answer: HttpResponse) -> Result<HttpResponse, HttpError> {
        let (answer, body) = whole(answer).await?;
        let root = listing::root(&body);
        let (mut parts, _) = answer.into_parts();
        match (self, root.as_deref()) {
            (_, Some("Error")) => {
                parts.status = StatusCode::INTERNAL_SERVER_ERROR;
                Ok(HttpResponse::from_parts(parts, body.into()))
            }
            (Asked::Listing, Some("ListBucketResult")) if parts.status == StatusCode::OK => {
                let (keys, body) = listing::checked(body).map_err(|why| no_answer(&why))?;
                parts.extensions.insert(keys);
                Ok(HttpResponse::from_parts(parts, body.into()))
            }
            (Asked::Removal, Some("DeleteResult")) => Ok(HttpResponse::from_parts(parts, body.into())),
            _ => Err(self.instead(&HttpResponse::from_parts(parts, Bytes::new().into()), &shown(root))),
        }
    }

    /// Not found, as the server itself says it: others in between say it with a page of their own.
    async fn missing(self, answer: HttpResponse) -> Result<HttpResponse, HttpError> {
        let (answer, body) = whole(answer).await?;
        let root = listing::root(&body);
        if root.as_deref() != Some("Error") {
            return Err(self.instead(&answer, &shown(root)));
        }
        let (parts, _) = answer.into_parts();
        Ok(HttpResponse::from_parts(parts, body.into()))
    }

    fn instead(self, answer: &HttpResponse, with: &str) -> HttpError {
        let what = match self {
            Asked::Listing => "a listing",
            Asked::Removal => "word of what was deleted",
            Asked::Object | Asked::Head => "an object",
            Asked::Other => "an answer",
        };
        no_answer(&format!("the server answered {}{with} instead of {what}", answer.status().as_u16()))
    }
}

fn no_answer(why: &str) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, NoAnswer(why.to_owned()))
}

/// What a document turned out to be, for people.
fn shown(root: Option<String>) -> String {
    root.map_or_else(|| " with something that is no XML".to_owned(), |root| format!(" with <{root}>"))
}

/// The answer without its body, and its body.
async fn whole(answer: HttpResponse) -> Result<(HttpResponse, Bytes), HttpError> {
    let (parts, body) = answer.into_parts();
    let mut stream = body.bytes_stream();
    let mut bytes = Vec::new();
    while let Some(part) = stream.try_next().await? {
        if bytes.len() + part.len() > DOCUMENT_MAX {
            return Err(no_answer("the server's answer does not end"));
        }
        bytes.extend_from_slice(&part);
    }
    Ok((HttpResponse::from_parts(parts, Bytes::new().into()), bytes.into()))
}
