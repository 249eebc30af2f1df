//! Owns: the sources that Azure has: user data from the metadata service, and custom data on the provisioning DVD.
//! Given the service and the root, gives the first of the two that there is, as Ignition does.
//! Never: looks at the DVD before the service has said that it has nothing, or for anything but `CustomData.bin`.

use super::metadata::{Metadata, Miss};
use super::{Context, Pointer, PointerError, PointerSource, drive, told};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub(super) struct Azure;

impl PointerSource for Azure {
    fn name(&self) -> &'static str {
        "azure"
    }

    fn load(&self, context: &Context) -> Result<Option<Pointer>, PointerError> {
        match context.metadata.patiently(self.name(), user_data)? {
            Some(data) => Ok(told(self.name(), Some(data))),
            None => custom_data(context),
        }
    }
}

/// Azure Stack has no user data.
pub(super) struct AzureStack;

impl PointerSource for AzureStack {
    fn name(&self) -> &'static str {
        "azurestack"
    }

    fn load(&self, context: &Context) -> Result<Option<Pointer>, PointerError> {
        custom_data(context)
    }
}

fn user_data(service: &Metadata) -> Result<Option<Vec<u8>>, Miss> {
    const PATH: &str = "/metadata/instance/compute/userData?api-version=2021-01-01&format=text";
    match service.ask("GET", PATH, &[("Metadata", "true")])? {
        (200, text) => {
            let dense: Vec<u8> = text.into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
            let data =
                STANDARD.decode(dense).map_err(|_| Miss::Final("user data that is not base64".to_owned()))?;
            Ok(Some(data).filter(|data| !data.is_empty()))
        }
        // While the machine is being set up the service does not know it yet; Ignition waits for it too.
        (status @ (404 | 410), _) => Err(Miss::Again(format!("status {status}"))),
        (status, _) => Err(Miss::Final(format!("status {status}"))),
    }
}

fn custom_data(context: &Context) -> Result<Option<Pointer>, PointerError> {
    drive::read(context.paths, &context.paths.first_optical_drive(), &["udf"], "CustomData.bin")
}
