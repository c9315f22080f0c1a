"""The training steps that are shipped as captures, from configurations of ``transformers``.

Weights are random, drawn on the device or, in a fake capture, not at all; nothing is downloaded.
Every function returns a model and its example inputs, and can be named as a capture target:
``slackswap.profiles.capture.models:bert_large_sdpa``. `layers` makes a shallower model of the same
blocks.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import transformers

Inputs = dict[str, torch.Tensor]
Built = tuple[torch.nn.Module, Inputs]


def bert_large(attention: str, batch: int = 32, sequence: int = 512, layers: int = 24) -> Built:
    """BERT-Large with its masked-language head, post-LN, dropout 0.1."""
    config = transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=layers, num_attention_heads=16, intermediate_size=4096,
        attn_implementation=attention,
    )
    return _language_model(transformers.BertForMaskedLM, config, batch, sequence)


def gpt2_xl(attention: str, batch: int = 8, sequence: int = 1024, layers: int = 48) -> Built:
    """GPT-2 XL, pre-LN, dropout 0.1, GELU written as eight operators."""
    config = transformers.GPT2Config(
        n_embd=1600, n_layer=layers, n_head=25, use_cache=False, attn_implementation=attention
    )
    return _language_model(transformers.GPT2LMHeadModel, config, batch, sequence)


def llama_7b(attention: str, batch: int = 4, sequence: int = 2048, layers: int = 32) -> Built:
    """Llama-7B, no dropout, RMS norm written as six operators that upcast to fp32."""
    config = transformers.LlamaConfig(
        hidden_size=4096, num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=32,
        intermediate_size=11008, vocab_size=32000, use_cache=False, attn_implementation=attention,
    )
    return _language_model(transformers.LlamaForCausalLM, config, batch, sequence)


def llama3_8b(attention: str, batch: int = 2, sequence: int = 4096, layers: int = 32) -> Built:
    """Llama-3-8B: as Llama-7B, with 8 key and value heads for 32 query heads."""
    config = transformers.LlamaConfig(
        hidden_size=4096, num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=8,
        intermediate_size=14336, vocab_size=128256, max_position_embeddings=8192, use_cache=False,
        attn_implementation=attention,
    )
    return _language_model(transformers.LlamaForCausalLM, config, batch, sequence)


def vit_l(attention: str, batch: int = 64, layers: int = 24) -> Built:
    """ViT-L/16 at 224 pixels, no dropout."""
    config = transformers.ViTConfig(
        hidden_size=1024, num_hidden_layers=layers, num_attention_heads=16, intermediate_size=4096,
        num_labels=1000, attn_implementation=attention,
    )
    return _classifier(transformers.ViTForImageClassification, config, batch, torch.bfloat16)


def resnet50(batch: int = 64) -> Built:
    """ResNet-50 at 224 pixels, fp32."""
    config = transformers.ResNetConfig(num_labels=1000)
    return _classifier(transformers.ResNetForImageClassification, config, batch, torch.float32)


def resnet18(batch: int = 8) -> Built:
    """ResNet-18 at 224 pixels, fp32, small enough to run on a CPU."""
    config = transformers.ResNetConfig(
        hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=1000
    )
    return _classifier(transformers.ResNetForImageClassification, config, batch, torch.float32)


def gpt_small(batch: int = 4, sequence: int = 256) -> Built:
    """GPT-2 of 4 layers and 256 hidden units, fp32, small enough to run on a CPU."""
    config = transformers.GPT2Config(
        n_embd=256, n_layer=4, n_head=4, n_positions=sequence, vocab_size=4096, use_cache=False,
        bos_token_id=0, eos_token_id=0,
    )
    return _language_model(
        transformers.GPT2LMHeadModel, config, batch, sequence, dtype=torch.float32
    )


bert_large_sdpa = partial(bert_large, "sdpa")
bert_large_eager = partial(bert_large, "eager")
gpt2_xl_sdpa = partial(gpt2_xl, "sdpa")
gpt2_xl_eager = partial(gpt2_xl, "eager")
llama_7b_sdpa = partial(llama_7b, "sdpa")
llama_7b_sdpa_single = partial(llama_7b, "sdpa", batch=1)
llama_7b_eager = partial(llama_7b, "eager")
llama3_8b_sdpa = partial(llama3_8b, "sdpa")
llama3_8b_eager = partial(llama3_8b, "eager")
vit_l_sdpa = partial(vit_l, "sdpa")
vit_l_eager = partial(vit_l, "eager")


def _language_model(
    architecture: Any, config: Any, batch: int, sequence: int, dtype: torch.dtype = torch.bfloat16
) -> Built:
    model = architecture(config).to(dtype).train()
    tokens = torch.randint(0, config.vocab_size, (batch, sequence))
    # No attention mask: every sequence is full, as in pre-training.
    return model, {"input_ids": tokens, "labels": tokens}


def _classifier(architecture: Any, config: Any, batch: int, dtype: torch.dtype) -> Built:
    model = architecture(config).to(dtype).train()
    images = torch.randn(batch, 3, 224, 224, dtype=dtype)
    return model, {"pixel_values": images, "labels": torch.randint(0, 1000, (batch,))}
