//! Owns: the source that GCP's metadata server is.
//! Given the service, gives the instance's attribute `user-data`.
//! Never: leaves out the header without which the server refuses: it proves that the request was meant.

use super::{Context, Pointer, PointerError, PointerSource, told};

pub(super) struct Gcp;

impl PointerSource for Gcp {
    fn name(&self) -> &'static str {
        "gcp"
    }

    fn load(&self, context: &Context) -> Result<Option<Pointer>, PointerError> {
        const PATH: &str = "/computeMetadata/v1/instance/attributes/user-data";
        let ask = |service: &super::Metadata| service.get(PATH, &[("Metadata-Flavor", "Google")]);
        Ok(told(self.name(), context.metadata.patiently(self.name(), ask)?))
    }
}
