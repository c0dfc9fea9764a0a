"""One process, one device: training and sampling with LoRA on transformers modules.

Everything here that imports torch is loaded by the engine process only. The one exception to
torch is `models`: finding a base model's files and reading their headers needs none.
"""
