//! Owns: the sources that `OpenStack` has: the config drive, and the metadata service.
//! Given the root and the service, gives the user data of whichever has some; most clouds offer only one of the two.
//! Never: waits for a drive when the service answers, or for the service when there is a drive.

use super::metadata::Miss;
use super::{Context, Pointer, PointerError, PointerSource, drive, told};

const USER_DATA: &str = "openstack/latest/user_data";

pub(super) struct OpenStack;

impl PointerSource for OpenStack {
    fn name(&self) -> &'static str {
        "openstack"
    }

    fn load(&self, context: &Context) -> Result<Option<Pointer>, PointerError> {
        let drive = || context.paths.config_drives().into_iter().find(|device| device.exists());
        // Nothing is None, a drive is Some(Err), user data of the service Some(Ok).
        let found = context.metadata.patiently(self.name(), |service| match drive() {
            Some(device) => Ok(Some(Err(device))),
            None => Ok::<_, Miss>(service.get(&format!("/{USER_DATA}"), &[])?.map(Ok)),
        })?;
        match found {
            Some(Err(device)) => drive::read(context.paths, &device, &["iso9660", "vfat"], USER_DATA),
            Some(Ok(data)) => Ok(told(self.name(), Some(data))),
            None => Ok(None),
        }
    }
}
