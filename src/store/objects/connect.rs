//! Getting to a bucket.

use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::{ClientOptions, RetryConfig};

use super::answers::Wary;
use super::probe::{Conditions, probe_key};
use super::{KEY_MAX, Objects};
use crate::clock::Clock;
use crate::error::{Context, Error, Kind, Result};
use crate::secret::Secret;
use crate::store::{Access, Query, Store as _};

/// A server that does not answer at all is known to be down after this.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// The largest object over a slow line takes minutes; nothing takes longer.
const REQUEST_WAIT: Duration = Duration::from_secs(300);
/// Room for a key behind the prefix.
const PREFIX_MAX: usize = KEY_MAX / 2;

/// Where a bucket is and how to get in. What is `None` comes from the usual `AWS_*` variables.
#[derive(Debug, Clone, Default)]
pub struct Bucket {
    pub bucket: String,
    /// Before every key; a `/` is put between.
    pub prefix: String,
    /// The server, for everything that is not Amazon's own.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key: Option<Secret>,
    pub secret_key: Option<Secret>,
}

impl Objects {
    /// Reach the bucket. With [`Access::Write`] the server's conditions are tried; to read, nothing is written.
    pub async fn connect(to: &Bucket, access: Access, clock: &dyn Clock) -> Result<Objects> {
        crate::tls::choose();
        let name = format!("s3://{}/{}", to.bucket, to.prefix);
        let mut prefix = to.prefix.trim_matches('/').to_owned();
        if prefix.len() > PREFIX_MAX {
            return Err(Error::new(Kind::Config, format!("{name}: the prefix is too long")));
        }
        if !prefix.is_empty() {
            super::check_key(&prefix).context(|| format!("the prefix of {name}"))?;
            prefix.push('/');
        }
        let client = builder(to)?.build().map_err(|error| {
            Error::new(Kind::Config, "the bucket's settings do not fit together").caused_by(error)
        });
        let mut objects = Objects {
            client: client.context(|| name.clone())?,
            name,
            prefix,
            access,
            conditions: Conditions::default(),
            probe_key: probe_key(clock.random()),
        };
        objects.list(Query { limit: 1, ..Query::keys("") }).await?;
        if access == Access::Write {
            objects.conditions = objects.try_conditions().await?;
        }
        Ok(objects)
    }
}

fn builder(to: &Bucket) -> Result<AmazonS3Builder> {
    let options = ClientOptions::new().with_connect_timeout(CONNECT_WAIT).with_timeout(REQUEST_WAIT);
    // Retrying is decided in one place, for all stores alike.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&to.bucket)
        .with_client_options(options)
        .with_http_connector(Wary::default())
        .with_retry(retry);
    if let Some(endpoint) = &to.endpoint {
        if endpoint.starts_with("http://") && !is_local(endpoint) {
            return Err(Error::new(
                Kind::Config,
                format!("{endpoint} would send the bucket's data in the clear"),
            )
            .remedy_is("Use https://; http:// is for servers on this machine."));
        }
        builder = builder.with_endpoint(endpoint).with_allow_http(is_local(endpoint));
    }
    if let Some(region) = &to.region {
        builder = builder.with_region(region);
    }
    match (&to.access_key, &to.secret_key) {
        (Some(id), Some(key)) => {
            builder = builder.with_access_key_id(id.expose()).with_secret_access_key(key.expose());
        }
        (None, None) => {}
        _ => {
            return Err(Error::new(Kind::Config, "only one of access key and secret key is set").remedy_is(
                "Set both `access_key_env` and `secret_key_env`, or neither to use AWS_* variables.",
            ));
        }
    }
    Ok(builder)
}

/// A server on this machine: nothing leaves it, so plain HTTP is fine.
fn is_local(endpoint: &str) -> bool {
    let host = endpoint.strip_prefix("http://").unwrap_or("");
    let host = host.split('/').next().unwrap_or("");
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_spoken_to_in_the_clear() {
        assert!(
            is_local("http://127.0.0.1:5000") && is_local("http://localhost/") && is_local("http://[::1]:9")
        );
        assert!(!is_local("http://localhost.example.com:80") && !is_local("http://10.0.0.1:9000"));
        let to = Bucket { endpoint: Some("http://minio.example.com".into()), ..Bucket::default() };
        assert_eq!(builder(&to).map(|_| ()).unwrap_err().kind(), Kind::Config);
    }
}
