"""How the SDK works: settings, the embedded server, tokenizers, and our clients on upstream's."""
