//! Numbers of layers and classes that no memory holds: a sentence with the user's line, not the end
//! of the process.

use pullback::catch;
use pullback_nn::models::{Gpt, GptConfig};
use pullback_nn::train::Confusion;
use pullback_nn::{RecurrentConfig, TransformerConfig};

const MANY: usize = 1 << 50;

#[test]
fn numbers_that_no_memory_holds() {
    let errors = [
        catch(|| drop(TransformerConfig::new(8, 2).encoder(MANY))).unwrap_err(),
        catch(|| drop(TransformerConfig::new(8, 2).decoder(MANY))).unwrap_err(),
        catch(|| drop(RecurrentConfig::new(2, 3).num_layers(MANY).lstm())).unwrap_err(),
        catch(|| drop(Gpt::new(&GptConfig { layers: MANY, ..GptConfig::default() }))).unwrap_err(),
        catch(|| drop(Confusion::new(MANY))).unwrap_err(),
    ];
    for error in errors {
        let said = error.to_string();
        assert!(said.contains("cannot allocate"), "{said}");
        assert!(said.contains("absurd_sizes.rs"), "{said}");
    }
}
