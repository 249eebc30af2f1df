//! Owns: the source that AWS's instance metadata service is.
//! Given the service, gives the instance's user data, asked for with a session token (`IMDSv2`).
//! Never: falls back to `IMDSv1`, which any workload that can make this machine send a plain request could use as well.

use super::metadata::{Metadata, Miss};
use super::{Context, Pointer, PointerError, PointerSource, told};

/// Six hours, the longest there is: AWS's own example.
const TTL: (&str, &str) = ("X-aws-ec2-metadata-token-ttl-seconds", "21600");

/// Without it an absent body would go out in chunks.
const EMPTY: (&str, &str) = ("Content-Length", "0");

pub(super) struct Aws;

impl PointerSource for Aws {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn load(&self, context: &Context) -> Result<Option<Pointer>, PointerError> {
        Ok(told(self.name(), context.metadata.patiently(self.name(), user_data)?))
    }
}

fn user_data(service: &Metadata) -> Result<Option<Vec<u8>>, Miss> {
    let (status, token) = service.ask("PUT", "/latest/api/token", &[TTL, EMPTY])?;
    let token = String::from_utf8(token).ok().filter(|token| !token.is_empty());
    let Some(token) = token.filter(|_| status == 200) else {
        return Err(Miss::Final(format!(
            "no session token (IMDSv2): PUT /latest/api/token: status {status}"
        )));
    };
    service.get("/2019-10-01/user-data", &[("X-aws-ec2-metadata-token", token.trim())])
}
